//! `geminga client`: sends and receives messages, with the options and the output of `pulsar-client`.

mod consume;
mod produce;
mod read;
mod received;

use std::future::Future;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use geminga_client::{Client, ClientError, ClientOptions};
use geminga_env::{Clock, Env, Stop};
use geminga_model::Instant;
use tokio::signal::unix::{SignalKind, signal};

use self::consume::ConsumeArgs;
pub(crate) use self::consume::{Position, SubscriptionType};
use self::produce::ProduceArgs;
use self::read::ReadArgs;
pub(crate) use self::read::start_at;

/// Options of `geminga client`.
#[derive(Debug, Args)]
#[command(after_help = "Example: geminga client consume orders -s billing -n 0")]
pub struct ClientArgs {
    /// Address of the broker, with several hosts if there are several.
    #[arg(long, value_name = "URL", default_value = "pulsar://localhost:6650", global = true)]
    url: String,
    /// Which of the brokers' addresses to use, where they have several.
    #[arg(long, value_name = "NAME", global = true)]
    listener_name: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Send messages to a topic.
    Produce(ProduceArgs),
    /// Receive messages of a topic by a subscription, and acknowledge them.
    Consume(ConsumeArgs),
    /// Read messages of a topic without a subscription that stays.
    Read(ReadArgs),
}

/// Why a tool ends with exit code 1: a line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] geminga_disk::DiskError),
    #[error("{0}")]
    Usage(String),
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// Does what was asked for. Exit code 1 if that failed; what was done before was printed.
#[must_use]
pub fn run_client(args: &ClientArgs) -> ExitCode {
    run_interruptible(async |env, interrupted| run(env, args, interrupted).await)
}

/// Runs a tool. Interrupted once it is told to end; twice it ends.
pub(crate) fn run_interruptible(tool: impl AsyncFnOnce(&Env, &Stop) -> Result<(), ToolError>) -> ExitCode {
    match start(tool) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start(tool: impl AsyncFnOnce(&Env, &Stop) -> Result<(), ToolError>) -> Result<(), ToolError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let env = Env::real(runtime.handle().clone(), runtime.handle().clone());
    runtime.block_on(async {
        let mut interrupts = signal(SignalKind::interrupt())?;
        let interrupted = Stop::new();
        let insisted = async {
            interrupts.recv().await;
            interrupted.stop();
            interrupts.recv().await;
        };
        tokio::select! {
            biased;
            () = insisted => Err(ToolError::Usage("interrupted again: ended without a goodbye to the broker".into())),
            outcome = tool(&env, &interrupted) => outcome,
        }
    })
}

async fn run(env: &Env, args: &ClientArgs, interrupted: &Stop) -> Result<(), ToolError> {
    let options = ClientOptions { listener: args.listener_name.clone(), ..ClientOptions::default() };
    let connecting = Client::with_options(env, &args.url, options);
    let Some(client) = unless(interrupted, connecting).await.transpose()? else { return Ok(()) };
    match &args.what {
        What::Produce(args) => produce::run(&client, args, interrupted).await?,
        What::Consume(args) => consume::run(&client, args, interrupted).await?,
        What::Read(args) => read::run(&client, args, interrupted).await?,
    }
    client.close().await;
    Ok(())
}

/// What `work` comes to, or `None` if the person at the keyboard wants an end first.
pub(crate) async fn unless<T>(interrupted: &Stop, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interrupted.stopped() => None,
        outcome = work => Some(outcome),
    }
}

/// Spaces things out in time.
#[derive(Debug)]
struct Pace {
    clock: Clock,
    /// Things a second; 0 for as fast as it goes.
    rate: f64,
    next: Instant,
}

impl Pace {
    fn new(clock: Clock, rate: f64) -> Pace {
        Pace { clock, rate, next: clock.now() }
    }

    /// Waits for the next turn.
    async fn turn(&mut self) {
        if self.rate > 0.0 {
            self.clock.sleep_until(self.next).await;
            // What comes late is not made up for by a burst.
            self.next = self.clock.now().max(self.next) + std::time::Duration::from_secs_f64(1.0 / self.rate);
        }
    }
}

/// A number of things a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Less than one a day is a slip of the keyboard.
    let legal = rate == 0.0 || (1e-5..=1e9).contains(&rate);
    legal.then_some(rate).ok_or_else(|| "expected 0 for as fast as possible, or a number of messages a second".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!((rate("0"), rate("2.5")), (Ok(0.0), Ok(2.5)));
        for bad in ["-1", "NaN", "inf", "1e-300", "fast"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_without_bursts() {
        let clock = Clock::simulated();
        let start = clock.now();
        let mut pace = Pace::new(clock, 10.0);
        for _ in 0..3 {
            pace.turn().await;
        }
        assert_eq!(clock.now().since(start).as_millis(), 200);
        clock.sleep_until(clock.now() + std::time::Duration::from_secs(5)).await;
        let late = clock.now();
        pace.turn().await;
        pace.turn().await;
        assert_eq!(clock.now().since(late).as_millis(), 100);
    }
}
