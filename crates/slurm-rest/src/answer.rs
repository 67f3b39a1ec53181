//! What an answer means: Slurm's error numbers first, the status only where there are none. Pure.

use crate::error::{Error, errno};
use crate::wire::or_default;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What surrounds every payload.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Envelope {
    /// Why Slurm did not do what was asked for, or not all of it.
    #[serde(deserialize_with = "or_default")]
    pub errors: Vec<Complaint>,
    /// What Slurm found odd.
    #[serde(deserialize_with = "or_default")]
    pub warnings: Vec<Complaint>,
    #[serde(deserialize_with = "or_default")]
    meta: Meta,
}

/// One error or warning.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Complaint {
    /// 0 in warnings, and in some errors.
    #[serde(deserialize_with = "or_default")]
    pub error_number: i32,
    #[serde(deserialize_with = "or_default")]
    error: String,
    /// In words.
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

    /// The complaint that decides: the first with a number.
    fn decisive(&self) -> Option<&Complaint> {
        self.errors.iter().find(|error| error.error_number != 0).or(self.errors.first())
    }
}

impl Complaint {
    fn text(&self) -> String {
        match (self.description.is_empty(), self.error.is_empty()) {
            (false, false) => format!("{} ({})", self.description, self.error),
            (false, true) => self.description.clone(),
            (true, _) => self.error.clone(),
        }
    }
}

/// Whether the server knows no such path, in this version of the API. What slurmctld does not know is told in JSON.
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

/// The error that an envelope and its status amount to.
pub fn check(status: StatusCode, envelope: &Envelope) -> Result<(), Error> {
    let Some(error) = envelope.decisive() else {
        return if status.is_success() { Ok(()) } else { Err(by_status(status, "no reason given")) };
    };
    let description = error.text();
    Err(match error.error_number {
        errno::PROTOCOL_AUTHENTICATION | errno::REST_AUTHENTICATION => Error::Unauthorized(description),
        number if errno::is_about_the_way(number) => Error::Unavailable(description),
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

/// As much of a text as belongs in an error message.
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

    fn judge(response: &Response<Bytes>) -> Result<(), Error> {
        match envelope("GET /x", response)? {
            Some(envelope) => check(response.status(), &envelope),
            None => Ok(()),
        }
    }

    const JSON: &str = "application/json";
    const TEXT: &str = "text/plain";

    fn complaint(number: i32) -> String {
        format!(r#"{{"errors":[{{"error_number":{number},"error":"e","description":"d"}}]}}"#)
    }

    #[rstest]
    #[case::token_refused(511, 1007, "unauthorized")]
    #[case::slurmrestd_refused(401, 9008, "unauthorized")]
    #[case::controller_down(502, 1800, "unavailable")]
    #[case::controller_down_otherwise(500, 1805, "unavailable")]
    #[case::controller_hangs(504, 5004, "unavailable")]
    #[case::controller_says_nothing(500, 5000, "unavailable")]
    #[case::controller_dies(500, 104, "unavailable")]
    #[case::refused(422, 2016, "rejected")]
    #[case::refused_by_an_older_release(500, 2016, "rejected")]
    #[case::unspecified(500, -1, "rejected")]
    #[case::without_number_in_a_good_answer(200, 0, "rejected")]
    #[case::without_number_in_a_bad_one(503, 0, "unavailable")]
    fn numbers_decide_and_the_status_where_there_is_none(
        #[case] status: u16,
        #[case] number: i32,
        #[case] category: &str,
    ) {
        let error = judge(&answer(status, JSON, &complaint(number))).unwrap_err();
        assert_eq!(error.category(), category, "{error:?}");
    }

    #[rstest]
    #[case::no_token(401, TEXT, "Authentication failure", "unauthorized")]
    #[case::proxy(502, "text/html", "<html>", "unavailable")]
    #[case::bad_request(400, TEXT, "Bad", "rejected")]
    #[case::good_but_empty(200, JSON, "", "malformed")]
    #[case::good_but_html(200, "text/html", "<html>", "malformed")]
    #[case::cut_short(200, JSON, r#"{"errors":["#, "malformed")]
    #[case::bad_without_reason(500, JSON, r#"{"errors":[]}"#, "rejected")]
    fn what_is_no_envelope_is_an_error(
        #[case] status: u16,
        #[case] kind: &str,
        #[case] body: &str,
        #[case] category: &str,
    ) {
        assert_eq!(judge(&answer(status, kind, body)).unwrap_err().category(), category);
    }

    #[rstest]
    #[case::slurms_word(500, JSON, r#"{"errors":[{"error_number":-1}]}"#, false)]
    #[case::wrong_request(400, TEXT, "Bad", false)]
    #[case::somebody_in_between(500, TEXT, "Oops", true)]
    #[case::no_reason(500, JSON, r#"{"errors":[]}"#, true)]
    fn a_failed_server_without_slurms_word_leaves_doubt(
        #[case] status: u16,
        #[case] kind: &str,
        #[case] body: &str,
        #[case] doubt: bool,
    ) {
        assert_eq!(judge(&answer(status, kind, body)).unwrap_err().maybe_applied(), doubt);
    }

    #[test]
    fn a_numbered_error_comes_before_one_without() {
        let body = r#"{"errors":[{"error_number":0,"description":"first"},
            {"error_number":2018,"error":"Invalid node name","description":"second"}]}"#;
        let error = judge(&answer(422, JSON, body)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "refused with 422 Unprocessable Entity, error 2018: second (Invalid node name)"
        );
    }

    #[test]
    fn null_and_unknown_members_do_no_harm() {
        let body = r#"{"errors":null,"warnings":null,"meta":{"slurm":{"release":"26.05.5","x":1}},"y":[]}"#;
        let envelope = envelope("GET /x", &answer(200, JSON, body)).unwrap().unwrap();
        assert_eq!(envelope.release(), Some("26.05.5"));
        assert!(check(StatusCode::OK, &envelope).is_ok());
    }

    #[rstest]
    #[case::path(TEXT, true)]
    #[case::object(JSON, false)]
    fn only_a_404_in_plain_text_is_about_the_path(#[case] kind: &str, #[case] path: bool) {
        assert_eq!(is_unknown_path(&answer(404, kind, "{}")), path);
    }
}
