//! Compiles the two protocol descriptions of `proto/` to Rust, without an installed `protoc`.

use std::error::Error;

const SOURCES: [&str; 2] = ["proto/pulsar_api.proto", "proto/pulsar_markers.proto"];

// What a build script tells cargo, it prints.
#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn Error>> {
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    let descriptors = protox::compile(SOURCES, ["proto"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
