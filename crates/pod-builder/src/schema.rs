//! The types inside a pod: how their fields merge, and which defaults the API server sets.
//!
//! A field without a description merges by its JSON type (objects by key, anything else as a whole) and has no default,
//! so fields newer than this table work; at worst they cause a write without effect.

/// An object type.
pub(crate) struct Object {
    /// Fields that do not merge by their JSON type, or contain defaults.
    pub fields: &'static [(&'static str, Field)],
    /// Fields of which at most one may be set.
    pub one_of: OneOf,
    /// Values that mean the same as an absent field.
    pub defaults: &'static [(&'static str, Plain)],
}

/// The description of a field.
pub(crate) enum Field {
    /// An object of this type.
    Object(&'static Object),
    /// A list whose elements have these key fields; elements of the same key merge.
    Keyed(&'static [&'static str], &'static Object),
    /// A list that is replaced as a whole.
    Atomic(&'static Object),
    /// A quantity such as `500m`.
    Quantity,
    /// Quantities by name.
    Quantities,
}

/// Fields that exclude one another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OneOf {
    /// No fields.
    Nothing,
    /// All fields except `name`. A field that is set in base and patch merges.
    AllButName,
    /// The handlers of a probe or hook. A handler of the patch replaces the whole handler of the base: they do not
    /// merge.
    Handlers,
}

/// A scalar default.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    Text(&'static str),
    Number(i64),
    Flag(bool),
}

/// The handlers of probes and lifecycle hooks.
pub(crate) const HANDLERS: &[&str] = &["exec", "grpc", "httpGet", "sleep", "tcpSocket"];

impl Object {
    /// The description of a field, if there is one.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, kind)| kind)
    }
}

const fn object(fields: &'static [(&'static str, Field)]) -> Object {
    Object { fields, one_of: OneOf::Nothing, defaults: &[] }
}

const fn with_defaults(defaults: &'static [(&'static str, Plain)]) -> Object {
    Object { fields: &[], one_of: OneOf::Nothing, defaults }
}

use Field::{Atomic, Keyed, Object as Nested, Quantities, Quantity};
use Plain::{Flag, Number, Text};

/// An object of unknown type.
pub(crate) static OPAQUE: Object = object(&[]);

/// A pod template.
pub(crate) static TEMPLATE: Object = object(&[("spec", Nested(&POD))]);

/// A pod's spec.
pub(crate) static POD: Object = Object {
    fields: &[
        ("containers", Atomic(&CONTAINER)),
        ("ephemeralContainers", Keyed(&["name"], &CONTAINER)),
        ("hostAliases", Keyed(&["ip"], &OPAQUE)),
        ("imagePullSecrets", Keyed(&["name"], &OPAQUE)),
        ("initContainers", Atomic(&CONTAINER)),
        ("overhead", Quantities),
        ("resourceClaims", Keyed(&["name"], &SOURCES)),
        ("resources", Nested(&RESOURCES)),
        ("schedulingGates", Keyed(&["name"], &OPAQUE)),
        ("topologySpreadConstraints", Keyed(&["topologyKey"], &OPAQUE)),
        ("volumes", Keyed(&["name"], &VOLUME)),
    ],
    one_of: OneOf::Nothing,
    defaults: &[
        ("dnsPolicy", Text("ClusterFirst")),
        ("enableServiceLinks", Flag(true)),
        ("hostIPC", Flag(false)),
        ("hostNetwork", Flag(false)),
        ("hostPID", Flag(false)),
        ("hostname", Text("")),
        ("nodeName", Text("")),
        ("priorityClassName", Text("")),
        ("restartPolicy", Text("Always")),
        ("schedulerName", Text("default-scheduler")),
        ("serviceAccountName", Text("")),
        ("subdomain", Text("")),
        ("terminationGracePeriodSeconds", Number(30)),
    ],
};

/// A container.
pub(crate) static CONTAINER: Object = Object {
    fields: &[
        ("env", Keyed(&["name"], &ENV)),
        ("lifecycle", Nested(&LIFECYCLE)),
        ("livenessProbe", Nested(&PROBE)),
        ("ports", Keyed(&["containerPort", "protocol"], &PORT)),
        ("readinessProbe", Nested(&PROBE)),
        ("resources", Nested(&RESOURCES)),
        ("startupProbe", Nested(&PROBE)),
        ("volumeDevices", Keyed(&["devicePath"], &OPAQUE)),
        ("volumeMounts", Keyed(&["mountPath"], &MOUNT)),
    ],
    one_of: OneOf::Nothing,
    defaults: &[
        ("imagePullPolicy", Text("")),
        ("stdin", Flag(false)),
        ("stdinOnce", Flag(false)),
        ("terminationMessagePath", Text("/dev/termination-log")),
        ("terminationMessagePath", Text("")),
        ("terminationMessagePolicy", Text("File")),
        ("terminationMessagePolicy", Text("")),
        ("tty", Flag(false)),
        ("workingDir", Text("")),
    ],
};

static RESOURCES: Object = object(&[("limits", Quantities), ("requests", Quantities)]);

/// A container port: ports of equal number and different protocol are different.
pub(crate) static PORT: Object = with_defaults(&[
    ("hostIP", Text("")),
    ("hostPort", Number(0)),
    ("name", Text("")),
    ("protocol", Text("TCP")),
    ("protocol", Text("")),
]);

static MOUNT: Object = with_defaults(&[("readOnly", Flag(false)), ("subPath", Text(""))]);

static ENV: Object = Object {
    fields: &[("valueFrom", Nested(&VALUE_FROM))],
    one_of: OneOf::AllButName,
    defaults: &[("value", Text(""))],
};

static VALUE_FROM: Object = Object {
    fields: &[("fieldRef", Nested(&FIELD_REF)), ("resourceFieldRef", Nested(&RESOURCE_FIELD_REF))],
    one_of: OneOf::AllButName,
    defaults: &[],
};

static FIELD_REF: Object = with_defaults(&[("apiVersion", Text("v1"))]);
static RESOURCE_FIELD_REF: Object =
    Object { fields: &[("divisor", Quantity)], one_of: OneOf::Nothing, defaults: &[("divisor", Text("0"))] };

static LIFECYCLE: Object = object(&[("postStart", Nested(&HOOK)), ("preStop", Nested(&HOOK))]);

static HOOK: Object =
    Object { fields: &[("httpGet", Nested(&HTTP_GET))], one_of: OneOf::Handlers, defaults: &[] };

/// In the numbers of a probe, zero means the default.
static PROBE: Object = Object {
    fields: &[("grpc", Nested(&GRPC)), ("httpGet", Nested(&HTTP_GET))],
    one_of: OneOf::Handlers,
    defaults: &[
        ("failureThreshold", Number(3)),
        ("failureThreshold", Number(0)),
        ("initialDelaySeconds", Number(0)),
        ("periodSeconds", Number(10)),
        ("periodSeconds", Number(0)),
        ("successThreshold", Number(1)),
        ("successThreshold", Number(0)),
        ("timeoutSeconds", Number(1)),
        ("timeoutSeconds", Number(0)),
    ],
};

static HTTP_GET: Object = with_defaults(&[
    ("host", Text("")),
    ("path", Text("/")),
    ("path", Text("")),
    ("scheme", Text("HTTP")),
    ("scheme", Text("")),
]);

static GRPC: Object = with_defaults(&[("service", Text(""))]);

static SOURCES: Object = Object { fields: &[], one_of: OneOf::AllButName, defaults: &[] };

static VOLUME: Object = Object {
    fields: &[
        ("configMap", Nested(&FILES)),
        ("downwardAPI", Nested(&FILES)),
        ("emptyDir", Nested(&EMPTY_DIR)),
        ("hostPath", Nested(&HOST_PATH)),
        ("nfs", Nested(&READ_WRITE)),
        ("persistentVolumeClaim", Nested(&READ_WRITE)),
        ("projected", Nested(&PROJECTED)),
        ("secret", Nested(&FILES)),
    ],
    one_of: OneOf::AllButName,
    defaults: &[],
};

static FILES: Object = Object {
    fields: &[("items", Atomic(&FILE))],
    one_of: OneOf::Nothing,
    defaults: &[("defaultMode", Number(0o644))],
};

static FILE: Object =
    object(&[("fieldRef", Nested(&FIELD_REF)), ("resourceFieldRef", Nested(&RESOURCE_FIELD_REF))]);
static EMPTY_DIR: Object =
    Object { fields: &[("sizeLimit", Quantity)], one_of: OneOf::Nothing, defaults: &[("medium", Text(""))] };
static HOST_PATH: Object = with_defaults(&[("type", Text(""))]);
static READ_WRITE: Object = with_defaults(&[("readOnly", Flag(false))]);

static PROJECTED: Object = Object {
    fields: &[("sources", Atomic(&PROJECTED_SOURCE))],
    one_of: OneOf::Nothing,
    defaults: &[("defaultMode", Number(0o644))],
};

static PROJECTED_SOURCE: Object =
    object(&[("downwardAPI", Nested(&FILES)), ("serviceAccountToken", Nested(&SERVICE_ACCOUNT_TOKEN))]);
static SERVICE_ACCOUNT_TOKEN: Object = with_defaults(&[("expirationSeconds", Number(3600))]);
