//! Generates the protocol's types. `protox` compiles the proto file, so that no `protoc` is needed.

use std::error::Error;

const ROOT: &str = "../../proto";
const FILE: &str = "expectations/v1/expectations.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}/{FILE}");
    let descriptors = protox::compile([FILE], [ROOT])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
