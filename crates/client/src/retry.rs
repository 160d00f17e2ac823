//! Waiting between attempts.

use std::time::Duration;

use geminga_env::{Env, Random};
use geminga_model::Instant;

use crate::error::ClientError;
use crate::options::ClientOptions;

/// Waits that double up to a bound, each a little shorter than it could be, so that many clients do not come at once.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    min: Duration,
    max: Duration,
    random: Random,
}

impl Backoff {
    pub(crate) fn new(env: &Env, options: &ClientOptions) -> Backoff {
        let (min, max) = (options.backoff_min, options.backoff_max);
        Backoff { next: min, min, max, random: env.random.clone() }
    }

    /// The wait before the next attempt.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.max);
        let fifth = u64::try_from(wait.as_micros() / 5).unwrap_or(u64::MAX);
        wait - Duration::from_micros(self.random.below(fifth))
    }

    /// The attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }
}

/// An operation that is tried until it succeeds, fails for good, or its deadline passes.
#[derive(Debug)]
pub(crate) struct Retry {
    env: Env,
    backoff: Backoff,
    operation: String,
    timeout: Duration,
    pub(crate) deadline: Instant,
}

impl Retry {
    pub(crate) fn new(env: &Env, options: &ClientOptions, operation: String) -> Retry {
        let timeout = options.operation_timeout;
        Retry {
            env: env.clone(),
            backoff: Backoff::new(env, options),
            operation,
            timeout,
            deadline: env.clock.now() + timeout,
        }
    }

    fn timeout(&self, last: String) -> ClientError {
        ClientError::Timeout { operation: self.operation.clone(), after: self.timeout, last }
    }

    /// Waits for an answer, at most until the deadline.
    ///
    /// # Errors
    /// `Timeout`.
    pub(crate) async fn bound<T>(&self, answer: impl Future<Output = T>) -> Result<T, ClientError> {
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            () = self.env.clock.sleep_until(self.deadline) => Err(self.timeout("the broker did not answer".to_owned())),
        }
    }

    /// Waits after an attempt that failed.
    ///
    /// # Errors
    /// The attempt's own error if it is final; `Timeout` if no time is left.
    pub(crate) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_temporary() {
            return Err(error);
        }
        let next = self.env.clock.now() + self.backoff.wait();
        if next >= self.deadline {
            return Err(match error {
                // Already said as it is to be said.
                ClientError::Timeout { .. } => error,
                other => self.timeout(other.to_string()),
            });
        }
        self.env.clock.sleep_until(next).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_bound() {
        let env = Env::simulated(1);
        let options = ClientOptions { backoff_max: Duration::from_millis(500), ..ClientOptions::default() };
        let mut backoff = Backoff::new(&env, &options);
        for most in [100, 200, 400, 500, 500] {
            let wait = backoff.wait().as_millis();
            assert!((most * 4 / 5..=most).contains(&wait), "{wait} of {most}");
        }
        backoff.reset();
        assert!(backoff.wait() <= options.backoff_min);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_at_the_deadline_with_the_last_reason() {
        let env = Env::simulated(1);
        let mut retry = Retry::new(&env, &ClientOptions::default(), "looking up t".into());
        let refused = || ClientError::Unreachable { address: "a:1".into(), reason: "refused".into() };
        let error = loop {
            if let Err(error) = retry.after(refused()).await {
                break error;
            }
        };
        assert!(env.clock.now() <= retry.deadline);
        let text = error.to_string();
        assert!(text.contains("looking up t did not succeed within 30s") && text.contains("refused"), "{text}");
        assert_eq!(retry.after(ClientError::Closed("client")).await, Err(ClientError::Closed("client")));
    }
}
