//! `geminga admin`: asks a server's REST, with the commands, options and output of `pulsar-admin`.

mod groups;
mod messages;
mod plan;
mod rest;
mod show;
mod topics;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use geminga_disk::{Disk, OpenMode, RealDisk};
use geminga_env::Clock;
use serde_json::Value;

use self::groups::{Brokers, Clusters, Namespaces, Schemas, Tenants};
use self::messages::BETWEEN;
pub(crate) use self::plan::encode;
use self::plan::{Call, Plan};
use self::rest::{Rest, RestError};
use self::topics::Topics;

/// Options of `geminga admin`.
#[derive(Debug, Args)]
#[command(after_help = "Example: geminga admin topics stats orders")]
pub struct AdminArgs {
    /// REST address of the server, or several with commas between, of which the first that answers is asked.
    #[arg(long, value_name = "URL", default_value = "http://localhost:8080", global = true)]
    admin_url: String,
    /// Seconds that an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, global = true)]
    request_timeout: u64,
    #[command(subcommand)]
    group: Group,
}

#[derive(Debug, Subcommand)]
enum Group {
    /// Clusters.
    #[command(subcommand)]
    Clusters(Clusters),
    /// Tenants.
    #[command(subcommand)]
    Tenants(Tenants),
    /// Namespaces.
    #[command(subcommand)]
    Namespaces(Namespaces),
    /// Topics and their subscriptions.
    #[command(subcommand, alias = "persistent")]
    Topics(Topics),
    /// Brokers.
    #[command(subcommand)]
    Brokers(Brokers),
    /// Schemas of topics.
    #[command(subcommand)]
    Schemas(Schemas),
}

/// Asks and prints. Exit code 1 if the server cannot be asked or refuses.
#[must_use]
pub fn run_admin(args: &AdminArgs) -> ExitCode {
    let outcome = plan(&args.group).and_then(|plan| {
        let rest = Rest::new(&args.admin_url, Duration::from_secs(args.request_timeout.max(1)))?;
        carry_out(&rest, plan)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn plan(group: &Group) -> Result<Plan, String> {
    match group {
        Group::Clusters(what) => Ok(what.plan()),
        Group::Tenants(what) => Ok(what.plan()),
        Group::Namespaces(what) => what.plan(),
        Group::Topics(what) => what.plan(Clock::real().wall()),
        Group::Brokers(what) => Ok(what.plan()),
        Group::Schemas(what) => what.plan(read_file),
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let read = || {
        let file = RealDisk.open(path, OpenMode::Read)?;
        let mut buffer = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        let length = file.read_at(0, &mut buffer)?;
        buffer.truncate(length);
        Ok::<_, geminga_disk::DiskError>(buffer)
    };
    let bytes = read().map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| format!("{}: not text", path.display()))
}

fn carry_out(rest: &Rest, plan: Plan) -> Result<(), String> {
    let ask = |call: &Call| rest.ask(call).map_err(|error| error.to_string());
    let ask_json = |call: &Call| {
        let body = ask(call)?.body;
        serde_json::from_slice::<Value>(&body)
            .map_err(|error| format!("the answer to {} is no JSON: {error}", call.path))
    };
    match plan {
        Plan::Do(call) => drop(ask(&call)?),
        Plan::Show(call) => print!("{}", show::show(&ask(&call)?.body)),
        Plan::Field(call, name) => {
            let answer = ask_json(&call)?;
            println!("{}", answer.get(name).and_then(Value::as_str).unwrap_or_default());
        }
        Plan::Lists(calls) => {
            for call in calls {
                let Value::Array(list) = ask_json(&call)? else { continue };
                print!("{}", show::lines(&list));
            }
        }
        Plan::Position { call, sentence, otherwise } => {
            let body = ask(&call)?.body;
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let number = |name: &str| answer.get(name).and_then(Value::as_i64);
            match (number("ledgerId"), number("entryId")) {
                (Some(ledger), Some(entry)) => {
                    println!("{sentence}{ledger}:{entry}:{}", number("partitionIndex").unwrap_or(-1));
                }
                _ => println!("{otherwise}"),
            }
        }
        Plan::Messages(calls) => return print_messages(rest, &calls),
        Plan::Update { get, change, put } => {
            let mut whole = match ask_json(&get)? {
                Value::Object(members) => members,
                clusters => serde_json::Map::from_iter([("allowedClusters".to_owned(), clusters)]),
            };
            whole.extend(change);
            drop(ask(&put.body(&Value::Object(whole)))?);
        }
    }
    Ok(())
}

/// Fact: that there are fewer messages than were asked for is no failure, unless there is none at all by its id.
fn print_messages(rest: &Rest, calls: &[Call]) -> Result<(), String> {
    let mut printed = 0;
    for call in calls {
        let answer = match rest.ask(call) {
            Ok(answer) => answer,
            Err(RestError::Refused { status: 404, reason, .. })
                if reason == "Message not found" && call.path.contains("/position/") =>
            {
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        for message in messages::render(&answer.headers, &answer.body)? {
            print!("{}{message}", if printed > 0 { BETWEEN } else { "" });
            printed += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ureq::http::Method;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: AdminArgs,
    }

    fn planned(words: &str) -> Plan {
        let words = std::iter::once("admin").chain(words.split(' '));
        plan(&Cli::try_parse_from(words).unwrap().args.group).unwrap()
    }

    #[test]
    fn commands_become_requests() {
        let subscription = "/admin/v2/persistent/public/default/t/subscription/s";
        for (words, method, path, body) in [
            ("topics unload t", "PUT", "/admin/v2/persistent/public/default/t/unload".to_owned(), ""),
            (
                "topics create-partitioned-topic t -p 3",
                "PUT",
                "/admin/v2/persistent/public/default/t/partitions".to_owned(),
                "3",
            ),
            (
                "topics delete persistent://a/b/c --force",
                "DELETE",
                "/admin/v2/persistent/a/b/c?force=true".to_owned(),
                "",
            ),
            ("topics skip t -s s -n 5", "POST", format!("{subscription}/skip/5"), ""),
            ("topics clear-backlog t --subscription s", "POST", format!("{subscription}/skip_all"), ""),
            ("persistent skip-all t -s s", "POST", format!("{subscription}/skip_all"), ""),
            ("topics unsubscribe t -s s", "DELETE", subscription.to_owned(), ""),
            (
                "namespaces create a/b -b 8",
                "PUT",
                "/admin/v2/namespaces/a/b".to_owned(),
                r#"{"bundles":{"numBundles":8}}"#,
            ),
            ("tenants delete a", "DELETE", "/admin/v2/tenants/a".to_owned(), ""),
            ("schemas delete t", "DELETE", "/admin/v2/schemas/public/default/t/schema".to_owned(), ""),
        ] {
            let Plan::Do(call) = planned(words) else { panic!("{words}") };
            assert_eq!((call.method.as_str(), call.path, call.body.as_str()), (method, path, body), "{words}");
        }
        for (words, path) in [
            ("clusters list", "/admin/v2/clusters"),
            ("brokers healthcheck", "/admin/v2/brokers/health"),
            ("topics stats t", "/admin/v2/persistent/public/default/t/stats"),
            (
                "topics partitioned-stats t",
                "/admin/v2/persistent/public/default/t/partitioned-stats?perPartition=false",
            ),
            ("schemas get a/b/c -v 2", "/admin/v2/schemas/a/b/c/schema/2"),
        ] {
            assert_eq!(planned(words), Plan::Show(Call::new(Method::GET, path)), "{words}");
        }
    }

    #[test]
    fn positions_in_bodies() {
        let Plan::Do(call) = planned("topics create-subscription t -s s -m earliest -p a=b") else { panic!() };
        let body: Value = serde_json::from_str(&call.body).unwrap();
        assert_eq!((&body["ledgerId"], &body["properties"]["a"]), (&Value::from(-1), &Value::from("b")));
        let Plan::Do(call) = planned("topics reset-cursor t -s s -m 3:4 -e") else { panic!() };
        let body: Value = serde_json::from_str(&call.body).unwrap();
        assert_eq!((&body["entryId"], &body["excluded"]), (&Value::from(4), &Value::from(true)));
        let Plan::Do(call) = planned("topics reset-cursor t -s s -t 1h") else { panic!() };
        assert!(call.path.contains("/resetcursor/1"), "{}", call.path);
        let Plan::Messages(calls) = planned("topics peek-messages t -s s -n 2") else { panic!() };
        assert!(calls[1].path.ends_with("/position/2"));
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let rest = Rest::new("http://127.0.0.1:1", Duration::from_secs(5)).unwrap();
        let error = carry_out(&rest, Plan::Show(Call::get("/"))).unwrap_err();
        assert!(error.contains("http://127.0.0.1:1") && error.contains("--admin-url"), "{error}");
    }
}
