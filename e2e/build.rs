//! Generates a client from the last released version of the expectations protocol, for the tests that let it call the
//! service of this version.

use std::error::Error;

const ROOT: &str = "../proto/released";
const FILE: &str = "expectations/v1/expectations.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}/{FILE}");
    let descriptors = protox::compile([FILE], [ROOT])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
