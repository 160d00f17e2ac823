//! One client connection's rules: which command is allowed when, and what it means.
//!
//! A [`Session`] is a state machine owned by the task of a connection. It knows which producers, consumers and watchers
//! the connection has, which requests wait for an answer, and when the peer was last heard of.
//!
//! Deliberately not here: bytes (see `wire`), sockets, topics, and messages on their way to a consumer or receipts on
//! their way to a producer. Those the owner of the topic puts into the connection's outbox itself, naming the producer
//! or consumer by the id within its key; no rule of the connection applies to them.
//!
//! How data enters: [`Session::handle_command`] with each decoded command, the other `handle_…` with what the broker
//! answers, [`Session::handle_timeout`] at [`Session::deadline`], and [`Session::close`] when the socket is gone.
//! How it leaves: [`Session::take_effects`], in order. An effect that names a key or a request wants an answer; the
//! documentation of [`Effect`] says which one. Keys are never used again within a connection, so an answer that comes
//! late, or twice, is recognised and has no effect.
//!
//! What holds, whatever peer and broker do: a request gets at most one final reply, and exactly one once the broker
//! has answered; all that was opened is closed by exactly one effect, unless the broker reported its end first.
//!
//! Start reading at [`Effect`], then `session.rs`.

mod answer;
mod config;
mod consumers;
mod effect;
mod producers;
mod requests;
mod session;
mod specs;
mod watchers;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use answer::{Answer, LookupAnswer, NewOwner, ProducerOpened, Refusal};
pub use config::{Peer, SessionConfig};
pub use effect::{CloseReason, ConsumerKey, Effect, ProducerKey, RequestKey, SeekTarget, WatcherKey};
pub use session::Session;
pub use specs::{KeyShared, ProducerSpec, SubscribeSpec};
