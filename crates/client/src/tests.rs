//! The client against a broker that plays a script.

mod broker;
mod consuming;
mod producing;

use std::time::Duration;

use geminga_wire::{Command, ServerError};

use self::broker::{Broker, env, options, play};
use crate::*;

#[tokio::test]
async fn an_error_says_what_to_try() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let Command::Lookup(lookup) = peer.any().await.0 else { panic!() };
        peer.say(Command::lookup_failed(lookup.request_id, ServerError::TopicNotFound, "no such namespace")).await;
        peer.refuse(ServerError::ConsumerBusy, "Exclusive consumer is already connected").await;
    };
    let client = async {
        let client = broker.client().await;
        let error = client.lookup(&"t".parse().unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("TopicNotFound: no such namespace; create the topic"), "{error}");
        let error = client.subscribe("t", ConsumerOptions::new("s")).await.unwrap_err().to_string();
        assert!(error.contains("ConsumerBusy") && error.contains("; use another subscription"), "{error}");
        assert!(matches!(client.producer("a/b", ProducerOptions::default()).await, Err(ClientError::InvalidTopic(_))));
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn nobody_there() {
    // A port that was free a moment ago.
    let url = Broker::start().url();
    let hasty = ClientOptions { operation_timeout: Duration::from_millis(30), ..options() };
    let error = Client::with_options(&env(), &url, hasty).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::Timeout { .. }) && text.contains("cannot connect to 127.0.0.1"), "{text}");
    assert!(matches!(Client::connect(&env(), "http://a").await, Err(ClientError::InvalidUrl { .. })));
}

#[tokio::test]
async fn a_broker_that_does_not_answer() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        assert!(matches!(peer.any().await.0, Command::Lookup(_)));
        peer
    };
    let client = async {
        let hasty = ClientOptions { operation_timeout: Duration::from_millis(50), ..options() };
        let client = Client::with_options(&env(), &broker.url(), hasty).await.unwrap();
        let error = client.lookup(&"t".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        assert!(error.to_string().contains("did not answer"), "{error}");
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_silent_broker_is_given_up() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        assert!(matches!(peer.any().await.0, Command::Lookup(_)));
        assert!(matches!(peer.any().await.0, Command::Ping(_)));
        assert!(peer.is_closed().await);
        // On a new connection all is well.
        let mut peer = broker.accept().await;
        let Command::Lookup(lookup) = peer.any().await.0 else { panic!() };
        peer.say(Command::PING).await;
        assert!(matches!(peer.any().await.0, Command::Pong(_)));
        peer.say(Command::lookup_connect(lookup.request_id, Some("pulsar://b:1".into()), None, false)).await;
        peer
    };
    let client = async {
        let alert = ClientOptions { keep_alive: Duration::from_millis(100), ..options() };
        let client = Client::with_options(&env(), &broker.url(), alert).await.unwrap();
        assert_eq!(client.lookup(&"t".parse().unwrap()).await.as_deref(), Ok("pulsar://b:1"));
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn look_ups_follow_redirects_and_proxies() {
    let (first, second) = (Broker::start(), Broker::start());
    let script = async {
        let mut peer = first.accept().await;
        let Command::Lookup(lookup) = peer.any().await.0 else { panic!() };
        assert!(!lookup.authoritative());
        peer.say(Command::lookup_redirect(lookup.request_id, Some(second.url()), None, true)).await;
        let mut other = second.accept().await;
        let Command::Lookup(lookup) = other.any().await.0 else { panic!() };
        assert!(lookup.authoritative());
        other.say(Command::lookup_connect(lookup.request_id, Some("pulsar://hidden:7".into()), None, true)).await;
        // The broker is behind the service URL.
        let mut proxied = first.accept().await;
        assert_eq!(proxied.connect.as_ref().unwrap().proxy_to_broker_url(), "hidden:7");
        proxied.producer().await;
        (peer, other, proxied)
    };
    let client = async {
        let client = first.client().await;
        client.producer("persistent://public/default/t-partition-0", ProducerOptions::default()).await.unwrap()
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn closing_a_client_ends_everything() {
    let broker = Broker::start();
    let (arrived, mut under_way) = geminga_env::reply();
    let script = async {
        let mut peer = broker.accept().await;
        peer.producer().await;
        peer.send().await;
        arrived.send(());
        assert!(peer.is_closed().await);
    };
    let client = async {
        let client = broker.client().await;
        let producer = client.producer("t", ProducerOptions::default()).await.unwrap();
        let mut receipt = producer.send(Message::new("a")).await.unwrap();
        under_way.wait().await.unwrap();
        client.close().await;
        let error = receipt.wait().await.unwrap_err();
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        assert!(matches!(producer.send(Message::new("b")).await, Err(ClientError::Closed(_))));
    };
    play(Box::pin(script), Box::pin(client)).await;
}
