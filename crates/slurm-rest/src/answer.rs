//! Classifies answers: by Slurm's error number, or by the HTTP status if there is none. Pure.

use crate::error::{Error, errno};
use crate::wire::or_default;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The fields that accompany every payload.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// Why Slurm did not execute the request, or only in part.
    #[serde(deserialize_with = "or_default")]
    pub errors: Vec<ErrorEntry>,
    /// Warnings, which do not affect the result.
    #[serde(deserialize_with = "or_default")]
    pub warnings: Vec<ErrorEntry>,
    #[serde(deserialize_with = "or_default")]
    meta: Meta,
}

/// One error or warning.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ErrorEntry {
    /// 0 in warnings, and in some errors.
    #[serde(deserialize_with = "or_default")]
    pub error_number: i32,
    #[serde(deserialize_with = "or_default")]
    error: String,
    /// Slurm's message.
    #[serde(deserialize_with = "or_default")]
    pub description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(deserialize_with = "or_default")]
    slurm: Slurm,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Slurm {
    #[serde(deserialize_with = "or_default")]
    release: String,
}

impl Envelope {
    /// The release of Slurm that answered.
    pub fn release(&self) -> Option<&str> {
        Some(self.meta.slurm.release.as_str()).filter(|release| !release.is_empty())
    }

    /// The entry that determines the error: the first with a number, else the first.
    fn decisive(&self) -> Option<&ErrorEntry> {
        self.errors.iter().find(|error| error.error_number != 0).or(self.errors.first())
    }
}

impl ErrorEntry {
    fn text(&self) -> String {
        match (self.description.is_empty(), self.error.is_empty()) {
            (false, false) => format!("{} ({})", self.description, self.error),
            (false, true) => self.description.clone(),
            (true, _) => self.error.clone(),
        }
    }
}

/// Whether the server does not serve the path in this API version. Objects unknown to slurmctld are reported in JSON.
pub fn is_unknown_path(response: &Response<Bytes>) -> bool {
    response.status() == StatusCode::NOT_FOUND && !is_json(response)
}

fn is_json(response: &Response<Bytes>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.starts_with("application/json"))
}

/// The envelope of an answer that may hold a payload; `None` for one without a body.
pub fn envelope(request: &str, response: &Response<Bytes>) -> Result<Option<Envelope>, Error> {
    let status = response.status();
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(None);
    }
    if !is_json(response) && !status.is_success() {
        return Err(by_status(status, &excerpt(response.body())));
    }
    let envelope: Envelope = decode(request, response.body())?;
    Ok(Some(envelope))
}

/// The error that an envelope and its HTTP status stand for.
pub fn check(status: StatusCode, envelope: &Envelope) -> Result<(), Error> {
    let Some(error) = envelope.decisive() else {
        return if status.is_success() {
            Ok(())
        } else {
            Err(by_status(status, "slurmrestd gave no reason"))
        };
    };
    let description = error.text();
    Err(match error.error_number {
        errno::PROTOCOL_AUTHENTICATION | errno::REST_AUTHENTICATION => Error::Unauthorized(description),
        number if errno::is_connection_error(number) => Error::Unavailable(description),
        0 if !status.is_success() => by_status(status, &description),
        errno => Error::Rejected { status, errno, description },
    })
}

fn by_status(status: StatusCode, text: &str) -> Error {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::NETWORK_AUTHENTICATION_REQUIRED => {
            Error::Unauthorized(text.to_owned())
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Error::Unavailable(format!("{status}: {text}"))
        }
        _ => Error::Rejected { status, errno: 0, description: text.to_owned() },
    }
}

/// The payload of an answer.
pub fn decode<T: DeserializeOwned>(request: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|source| Error::Malformed { request: request.to_owned(), source })
}

/// The beginning of a body, short enough for an error message.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn answer(status: u16, kind: &str, body: &str) -> Response<Bytes> {
        Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, kind)
            .body(Bytes::copy_from_slice(body.as_bytes()))
            .unwrap()
    }

    fn check_response(response: &Response<Bytes>) -> Result<(), Error> {
        match envelope("GET /x", response)? {
            Some(envelope) => check(response.status(), &envelope),
            None => Ok(()),
        }
    }

    const JSON: &str = "application/json";
    const TEXT: &str = "text/plain";

    fn error_body(number: i32) -> String {
        format!(r#"{{"errors":[{{"error_number":{number},"error":"e","description":"d"}}]}}"#)
    }

    #[rstest]
    #[case::slurmctld_rejects_token(511, 1007, "unauthorized")]
    #[case::slurmrestd_rejects_token(401, 9008, "unauthorized")]
    #[case::controller_down(502, 1800, "unavailable")]
    #[case::other_connection_error(500, 1805, "unavailable")]
    #[case::controller_hangs(504, 5004, "unavailable")]
    #[case::controller_sends_nothing(500, 5000, "unavailable")]
    #[case::controller_dies(500, 104, "unavailable")]
    #[case::rejected(422, 2016, "rejected")]
    #[case::rejected_by_an_older_release(500, 2016, "rejected")]
    #[case::unspecified(500, -1, "rejected")]
    #[case::no_number_with_status_200(200, 0, "rejected")]
    #[case::no_number_with_status_503(503, 0, "unavailable")]
    fn error_number_decides_and_status_only_without_one(
        #[case] status: u16,
        #[case] number: i32,
        #[case] category: &str,
    ) {
        let error = check_response(&answer(status, JSON, &error_body(number))).unwrap_err();
        assert_eq!(error.category(), category, "{error:?}");
    }

    #[rstest]
    #[case::no_token(401, TEXT, "Authentication failure", "unauthorized")]
    #[case::proxy(502, "text/html", "<html>", "unavailable")]
    #[case::bad_request(400, TEXT, "Bad", "rejected")]
    #[case::empty_body(200, JSON, "", "malformed")]
    #[case::html_with_status_200(200, "text/html", "<html>", "malformed")]
    #[case::cut_short(200, JSON, r#"{"errors":["#, "malformed")]
    #[case::status_500_without_errors(500, JSON, r#"{"errors":[]}"#, "rejected")]
    fn answer_without_valid_envelope_is_an_error(
        #[case] status: u16,
        #[case] kind: &str,
        #[case] body: &str,
        #[case] category: &str,
    ) {
        assert_eq!(check_response(&answer(status, kind, body)).unwrap_err().category(), category);
    }

    #[rstest]
    #[case::slurm_error_number(500, JSON, r#"{"errors":[{"error_number":-1}]}"#, false)]
    #[case::client_error(400, TEXT, "Bad", false)]
    #[case::proxy(500, TEXT, "Oops", true)]
    #[case::no_reason(500, JSON, r#"{"errors":[]}"#, true)]
    fn server_error_without_slurm_number_may_have_been_applied(
        #[case] status: u16,
        #[case] kind: &str,
        #[case] body: &str,
        #[case] maybe_applied: bool,
    ) {
        assert_eq!(check_response(&answer(status, kind, body)).unwrap_err().maybe_applied(), maybe_applied);
    }

    #[test]
    fn error_with_number_takes_precedence() {
        let body = r#"{"errors":[{"error_number":0,"description":"first"},
            {"error_number":2018,"error":"Invalid node name","description":"second"}]}"#;
        let error = check_response(&answer(422, JSON, body)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "refused with 422 Unprocessable Entity, error 2018: second (Invalid node name)"
        );
    }

    #[test]
    fn null_and_unknown_fields_are_ignored() {
        let body = r#"{"errors":null,"warnings":null,"meta":{"slurm":{"release":"26.05.5","x":1}},"y":[]}"#;
        let envelope = envelope("GET /x", &answer(200, JSON, body)).unwrap().unwrap();
        assert_eq!(envelope.release(), Some("26.05.5"));
        assert!(check(StatusCode::OK, &envelope).is_ok());
    }

    #[rstest]
    #[case::path(TEXT, true)]
    #[case::object(JSON, false)]
    fn only_a_plain_text_404_means_unknown_path(#[case] kind: &str, #[case] path: bool) {
        assert_eq!(is_unknown_path(&answer(404, kind, "{}")), path);
    }
}
