//! The REST API of a broker.
//!
//! Deliberately not here: what the answers are made of (`broker` and below). A handler reads a request, asks the
//! broker, and says how it went.
//!
//! [`serve`] answers until its scope is stopped. Every refusal is `{"reason": …}` with the right status; a path that is
//! not known is a 404 that says so.
//!
//! Start reading at `routes.rs`; `refusal.rs` is where facts become statuses.

mod brokers;
mod exposition;
mod inspect;
mod message;
mod metrics;
mod namespaces;
mod refusal;
mod request;
mod routes;
mod schemas;
mod subscriptions;
mod tenants;
mod topics;

#[cfg(test)]
mod tests;

use geminga_broker::Broker;
use geminga_env::{Env, OnPanic};
use tokio::net::TcpListener;

use crate::exposition::Scrapes;

/// What handlers have at hand.
#[derive(Clone, Debug)]
struct Api {
    env: Env,
    broker: Broker,
    started: geminga_model::UnixMillis,
    scrapes: Scrapes,
}

/// Answers requests on `listener` until the control scope is stopped.
pub fn serve(env: &Env, broker: &Broker, listener: TcpListener) {
    let api = Api { env: env.clone(), broker: broker.clone(), started: env.clock.wall(), scrapes: Scrapes::default() };
    let routes = routes::routes(api);
    let stop = env.control.stop_signal().clone();
    env.control.spawn("rest", OnPanic::ExitProcess, async move {
        let served = axum::serve(listener, routes).with_graceful_shutdown(async move { stop.stopped().await });
        if let Err(error) = served.await {
            tracing::error!(%error, "the REST server ended");
        }
    });
}
