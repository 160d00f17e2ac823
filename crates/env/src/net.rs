//! Sockets: where they are opened, and with which options.

use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on `address`; port 0 takes a free one. Must be called within a runtime.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart would have to wait for the connections of the last process to time out.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connects to `address` and sends without delay.
///
/// # Errors
/// The peer refuses or cannot be reached.
pub async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listens_and_dials() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (dialled, accepted) = tokio::join!(dial(address), listener.accept());
        assert_eq!(dialled.unwrap().local_addr().unwrap(), accepted.unwrap().1);
        assert_eq!(listen(address).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    }
}
