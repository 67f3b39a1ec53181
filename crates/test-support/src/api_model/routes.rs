//! Parses HTTP requests and renders responses.

use super::deletion::DeleteOptions;
use super::ownership::{Owner, Write};
use super::patch::Patch;
use super::refusal::Refusal;
use super::selector::{self, selects};
use super::store::{Outcome, Part, Store, Target, check_identity, metadata_text};
use http::request::Parts;
use http::{Method, Response, header};
use kube::client::Body;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Field manager of requests without `fieldManager`.
const DEFAULT_MANAGER: &str = "unknown";

/// The content type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads all objects.
    List,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Patches an object.
    Patch,
    /// Deletes an object.
    Delete,
}

/// One request without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The client that sent it.
    pub client: String,
    /// The verb.
    pub verb: Verb,
    /// The object. The name is empty for lists and if the server generates it.
    pub target: Target,
    /// Whether it addresses the status subresource.
    pub is_status: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = format!("{:?}", self.verb).to_lowercase();
        let part = if self.is_status { "/status" } else { "" };
        write!(f, "{verb} {}{part} {}", self.target.resource, self.target.name)
    }
}

/// A parsed request.
pub(super) struct Request {
    pub call: Arc<Call>,
    query: BTreeMap<String, String>,
    content_type: String,
    body: Vec<u8>,
}

/// The response to a list request; borrows the objects to avoid copies.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    items: Vec<&'a Value>,
}

/// A response.
pub(super) struct Answer {
    pub code: u16,
    body: Vec<u8>,
}

impl Answer {
    fn new(code: u16, body: &impl Serialize) -> Self {
        Self { code, body: serde_json::to_vec(body).expect("the body serializes") }
    }

    pub fn into_response(self) -> Response<Body> {
        let response = Response::builder().status(self.code).header(header::CONTENT_TYPE, "application/json");
        response.body(Body::from(self.body)).expect("code and header are valid")
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, &refusal.body)
    }
}

impl Request {
    /// # Panics
    /// On requests that are not modelled: an error response would look like a failure of the cluster.
    pub fn parse(client: &str, parts: &Parts, body: Vec<u8>) -> Self {
        let query: BTreeMap<String, String> =
            parts.uri.query().unwrap_or_default().split('&').filter_map(parse_parameter).collect();
        for unsupported in ["dryRun", "fieldSelector", "watch"] {
            assert!(!query.contains_key(unsupported), "{unsupported} is not modelled: {}", parts.uri);
        }
        let (target, subresource) = parse_path(parts.uri.path()).unwrap_or_else(|| not_modelled(parts));
        let verb = match (&parts.method, target.name.is_empty()) {
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            _ => not_modelled(parts),
        };
        let is_status = match subresource.as_deref() {
            None => false,
            Some("status") => true,
            Some(_) => not_modelled(parts),
        };
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let is_forced = query.get("force").is_some_and(|force| force == "true");
        assert!(content_type != APPLY || is_forced, "an apply without force is not modelled: {}", parts.uri);
        let call = Arc::new(Call { client: client.to_owned(), verb, target, is_status });
        Self { call, query, content_type, body }
    }

    /// Performs the request, and records it as the cause of the changes.
    pub fn serve(&self, store: &mut Store) -> Answer {
        let before = store.log.len();
        let answer = self.dispatch(store).unwrap_or_else(Answer::from);
        for change in &mut store.log[before..] {
            change.by = Some(self.call.clone());
        }
        answer
    }

    fn dispatch(&self, store: &mut Store) -> Outcome<Answer> {
        let target = &self.call.target;
        if self.call.is_status && !target.has_status() {
            return Err(Refusal::no_such_resource());
        }
        match self.call.verb {
            Verb::Get => Ok(Answer::new(200, &*store.get(target)?)),
            Verb::List => self.list(store),
            Verb::Create => {
                let object = self.object()?;
                self.check_names(&object)?;
                let write = Write::Update(self.owner(false));
                Ok(Answer::new(201, &*store.create(target, Part::Main, object, &write)?))
            }
            Verb::Update => self.replace(store),
            Verb::Patch => self.patch(store),
            Verb::Delete => {
                let options = if self.body.is_empty() { b"{}" } else { self.body.as_slice() };
                let options: DeleteOptions = serde_json::from_slice(options)?;
                Ok(match store.delete(target, &options)? {
                    (object, false) => Answer::new(200, &*object),
                    (object, true) if target.resource == "pods" => Answer::new(200, &*object),
                    (_, true) => {
                        Answer::new(200, &json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
                    }
                })
            }
        }
    }

    fn list(&self, store: &Store) -> Outcome<Answer> {
        let target = &self.call.target;
        let selector = selector::parse(self.parameter("labelSelector"))?;
        let objects = store.list(&target.resource, &target.namespace);
        let list = List {
            api_version: "v1",
            kind: "List",
            metadata: json!({"resourceVersion": store.version.to_string()}),
            items: objects.map(|object| &**object).filter(|object| selects(&selector, object)).collect(),
        };
        Ok(Answer::new(200, &list))
    }

    fn replace(&self, store: &mut Store) -> Outcome<Answer> {
        let (target, object) = (&self.call.target, self.object()?);
        self.check_names(&object)?;
        let object = store.update(target, self.part(), &Write::Update(self.owner(false)), |entry| {
            check_identity(target, &entry.object, metadata_text(&object, "uid"), None)?;
            if target.is_custom() && metadata_text(&object, "resourceVersion").is_none() {
                return Err(Refusal::invalid(
                    target,
                    "metadata.resourceVersion: must be specified for an update",
                ));
            }
            Ok(object)
        })?;
        Ok(Answer::new(200, &*object))
    }

    fn patch(&self, store: &mut Store) -> Outcome<Answer> {
        let target = &self.call.target;
        let patch = match self.content_type.as_str() {
            APPLY => return self.apply(store),
            "application/merge-patch+json" => Patch::Merge(self.json()?),
            "application/strategic-merge-patch+json" if !target.is_custom() => Patch::Strategic(self.json()?),
            "application/json-patch+json" => Patch::Json(serde_json::from_slice(&self.body)?),
            _ => return Err(Refusal::unsupported_patch()),
        };
        let object = store.update(target, self.part(), &Write::Update(self.owner(false)), |entry| {
            let mut object = Value::clone(&entry.object);
            patch.apply_to(&mut object).map_err(|error| Refusal::invalid(target, &error.to_string()))?;
            Ok(object)
        })?;
        Ok(Answer::new(200, &*object))
    }

    fn apply(&self, store: &mut Store) -> Outcome<Answer> {
        let config = self.json()?;
        self.check_names(&config)?;
        let (object, is_new) = store.apply(&self.call.target, self.part(), config, self.owner(true))?;
        Ok(Answer::new(if is_new { 201 } else { 200 }, &*object))
    }

    fn part(&self) -> Part {
        if self.call.is_status { Part::Status } else { Part::Main }
    }

    fn owner(&self, applies: bool) -> Owner {
        let manager = Some(self.parameter("fieldManager")).filter(|name| !name.is_empty());
        Owner { manager: manager.unwrap_or(DEFAULT_MANAGER).to_owned(), applies, status: self.call.is_status }
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn json(&self) -> Outcome<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    fn object(&self) -> Outcome<Value> {
        let object = self.json()?;
        if object["metadata"].is_object() { Ok(object) } else { Err(Refusal::bad_request("not an object")) }
    }

    /// Refuses an object whose name or namespace differs from the path, where both are set.
    fn check_names(&self, object: &Value) -> Outcome<()> {
        let Target { namespace, name, .. } = &self.call.target;
        for (field, expected) in [("name", name), ("namespace", namespace)] {
            let actual = object["metadata"][field].as_str().unwrap_or_default();
            if !actual.is_empty() && !expected.is_empty() && actual != expected {
                let message =
                    format!("the {field} of the object ({actual}) does not match the URL ({expected})");
                return Err(Refusal::bad_request(&message));
            }
        }
        Ok(())
    }
}

#[expect(clippy::panic, reason = "a request that is not modelled is an error in the test")]
fn not_modelled(parts: &Parts) -> ! {
    panic!("{} {} is not modelled", parts.method, parts.uri)
}

fn parse_parameter(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    let value = value.replace('+', " ");
    Some((name.to_owned(), percent_decode_str(&value).decode_utf8_lossy().into_owned()))
}

/// The object and the subresource of a path.
fn parse_path(path: &str) -> Option<(Target, Option<String>)> {
    let mut segments = path.trim_matches('/').split('/');
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    let _version = segments.next()?;
    let rest: Vec<&str> = segments.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", None),
        [plural, name] => (*plural, *name, None),
        [plural, name, subresource] => (*plural, *name, Some((*subresource).to_owned())),
        _ => return None,
    };
    let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    Some((Target { resource, namespace: namespace.to_owned(), name: name.to_owned() }, subresource))
}
