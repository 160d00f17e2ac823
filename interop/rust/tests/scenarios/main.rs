//! What an application does with the official Rust client. Nothing here knows which server is under test.
//!
//! Environment: `SERVICE_URL` (pulsar://127.0.0.1:6650) and `ADMIN_URL` (http://127.0.0.1:8080).

mod consuming;
mod producing;
mod redelivery;
mod server;
mod topics;
