//! The real binary, as a person at a shell uses it.

#![allow(clippy::unwrap_used, reason = "a test; the exception of clippy.toml covers test functions alone")]

mod admin;
mod configuration;
mod quick_start;
mod rest;
mod server;
