//! The protocol on the wire: what the last release knows is still there, and code is generated the same every time.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use prost_types::{DescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
const FILE: &str = "expectations/v1/expectations.proto";

/// The descriptors of our file below a directory of `proto`.
fn compile(directory: &str) -> FileDescriptorSet {
    protox::compile([FILE], [Path::new(PROTO).join(directory)]).unwrap()
}

/// Everything that another version relies on, by its full name: numbers and types of fields, values of enums, and the
/// messages of methods.
fn facts(directory: &str) -> BTreeMap<String, String> {
    let descriptors = compile(directory);
    let file = descriptors.file.iter().find(|file| file.name() == FILE).unwrap();
    let mut facts = BTreeMap::new();
    for message in &file.message_type {
        facts.insert(message.name().to_owned(), "message".to_owned());
        facts.extend(message.field.iter().map(|field| field_facts(message, field)));
    }
    for kind in &file.enum_type {
        let values = kind.value.iter();
        facts.extend(
            values.map(|value| (format!("{} {}", kind.name(), value.name()), value.number().to_string())),
        );
    }
    for service in &file.service {
        facts.extend(service.method.iter().map(|method| {
            let streaming = (method.client_streaming(), method.server_streaming());
            let types = (method.input_type(), method.output_type());
            (format!("{}/{}", service.name(), method.name()), format!("{types:?} {streaming:?}"))
        }));
    }
    facts
}

/// A field by its number, since its name is not on the wire.
fn field_facts(message: &DescriptorProto, field: &prost_types::FieldDescriptorProto) -> (String, String) {
    let oneof = field.oneof_index.is_some() && !field.proto3_optional();
    let kind = format!("{:?} {:?} {} oneof: {oneof}", field.r#type(), field.label(), field.type_name());
    (format!("{} field {}", message.name(), field.number()), kind)
}

#[test]
fn everything_of_the_last_release_is_unchanged() {
    let (released, current) = (facts("released"), facts("."));
    assert!(released.len() > 50, "{released:#?}");
    let is_kept = |(name, fact): &(&String, &String)| current.get(*name) == Some(*fact);
    let broken: Vec<_> = released.iter().filter(|fact| !is_kept(fact)).collect();
    assert!(broken.is_empty(), "replicas of the last release do not understand: {broken:#?}");
}

/// Generates the code as `build.rs` does.
fn generate(name: &str) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    tonic_prost_build::configure().out_dir(&directory).compile_fds(compile(".")).unwrap();
    fs::read_to_string(directory.join("slinky.expectations.v1.rs")).unwrap()
}

#[test]
fn generated_code_is_the_same_every_time() {
    let built = fs::read_to_string(concat!(env!("OUT_DIR"), "/slinky.expectations.v1.rs")).unwrap();
    assert_eq!(generate("first"), built);
    assert_eq!(generate("second"), built);
}
