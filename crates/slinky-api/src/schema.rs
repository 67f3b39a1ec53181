//! Schema parts that the derive cannot generate, in the form of Kubernetes' own schemas.
//!
//! Used as `#[schemars(schema_with = "schema::...")]` on fields.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A Kubernetes quantity such as `500m` or `1Gi`.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// A Prometheus duration such as `1m30s`.
const PROMETHEUS_DURATION_PATTERN: &str =
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$";
const CONDITION_TYPE_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON_PATTERN: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// A CEL rule and the message of its violation.
pub type Rule = (&'static str, &'static str);

/// Required fields of a daemon that the operator runs, and of an external one.
pub const DAEMON_RULES: [Rule; 3] = [
    ("!self.external ? has(self.slurmKeyRef) : true", "slurmKeyRef must be set when external is false"),
    (
        "!self.external ? has(self.jwtKeyRef) || has(self.jwtHs256KeyRef) : true",
        "jwtKeyRef or jwtHs256KeyRef must be set when external is false",
    ),
    ("self.external ? has(self.externalConfig) : true", "externalConfig must be set when external is true"),
];

/// Rules as the value of `x-kubernetes-validations`.
pub fn rules<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Value {
    rules.into_iter().map(|(rule, message)| json!({ "rule": rule, "message": message })).collect()
}

/// A whole number without a declared width.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// An RFC 3339 time.
pub fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A Go duration, for which `format` has no value.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string" })
}

/// A number or a percentage.
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
}

/// A Prometheus duration.
pub fn prometheus_duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": PROMETHEUS_DURATION_PATTERN })
}

/// Any value, `null` included.
pub fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true, "nullable": true })
}

/// A list of `metav1.Condition` with the type as key, so that several field managers can each own theirs.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the current state of this object.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "Type of the condition in CamelCase or in foo.example.com/CamelCase.",
                    "maxLength": 316,
                    "pattern": CONDITION_TYPE_PATTERN,
                },
                "status": {
                    "type": "string",
                    "description": "Status of the condition.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "Why the condition has this status, in one CamelCase word.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": CONDITION_REASON_PATTERN,
                },
                "message": {
                    "type": "string",
                    "description": "Details for users. May be empty.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the condition was computed from.",
                },
            },
        },
    })
}

/// The fields of a `PersistentVolumeClaimSpec`.
pub fn volume_claim(_: &mut SchemaGenerator) -> Schema {
    let string = json!({ "type": "string" });
    let strings = json!({ "type": "array", "items": string, "x-kubernetes-list-type": "atomic" });
    let quantities = json!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        },
    });
    json_schema!({
        "type": "object",
        "properties": {
            "accessModes": strings,
            "dataSource": {
                "type": "object",
                "required": ["kind", "name"],
                "properties": { "apiGroup": string, "kind": string, "name": string },
                "x-kubernetes-map-type": "atomic",
            },
            "dataSourceRef": {
                "type": "object",
                "required": ["kind", "name"],
                "properties": { "apiGroup": string, "kind": string, "name": string, "namespace": string },
            },
            "resources": {
                "type": "object",
                "properties": { "limits": quantities, "requests": quantities },
            },
            "selector": {
                "type": "object",
                "properties": {
                    "matchExpressions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["key", "operator"],
                            "properties": { "key": string, "operator": string, "values": strings },
                        },
                        "x-kubernetes-list-type": "atomic",
                    },
                    "matchLabels": { "type": "object", "additionalProperties": string },
                },
                "x-kubernetes-map-type": "atomic",
            },
            "storageClassName": string,
            "volumeAttributesClassName": string,
            "volumeMode": string,
            "volumeName": string,
        },
    })
}
