//! Converts messages between their wire format and plain values. What arrives is checked: a message that no replica and
//! no service sends is refused, with the name of the field.

use crate::machine::OPS_PER_BATCH;
use crate::messages::{
    Answer, Basis, BatchId, Begin, Granted, Heartbeat, Membership, NodeSetName, Ops, ReplicaId, Wait,
    WaitReason,
};
use crate::proto;
use prost_types::Duration as ProtoDuration;
use std::time::Duration;

/// Longest identity of a replica or an epoch, and longest UID.
const MAX_ID: usize = 128;
/// Longest namespace: a DNS label.
const MAX_NAMESPACE: usize = 63;
/// Longest name: a DNS subdomain.
const MAX_NAME: usize = 253;
/// Longest cluster key: a namespace, a slash and a name.
const MAX_CLUSTER_KEY: usize = MAX_NAMESPACE + 1 + MAX_NAME;
/// More creates or deletes than a plan of any size has.
const MAX_REQUESTED: u32 = 1_000_000;

/// A message that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// A required field is absent or empty.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A text is too long.
    #[error("{field} has {length} bytes, more than {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
        /// The longest valid length.
        limit: usize,
    },
    /// A number is too large, or negative.
    #[error("{field} is {value}, and must be between 0 and {limit}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
        /// The largest valid value.
        limit: i64,
    },
    /// A cluster key that is not `<namespace>/<name>`.
    #[error("{0} is not <namespace>/<name>")]
    NoClusterKey(&'static str),
}

impl TryFrom<proto::BeginRequest> for Begin {
    type Error = InvalidMessage;

    fn try_from(request: proto::BeginRequest) -> Result<Self, InvalidMessage> {
        let nodeset = NodeSetName {
            namespace: text("namespace", request.namespace, MAX_NAMESPACE)?.into(),
            name: text("name", request.name, MAX_NAME)?.into(),
        };
        let ops = Ops {
            creates: number("creates", request.creates, MAX_REQUESTED)?,
            deletes: number("deletes", request.deletes, MAX_REQUESTED)?,
            others: number("others", request.others, OPS_PER_BATCH)?,
        };
        if request.generation < 0 {
            let (field, value) = ("generation", request.generation);
            return Err(InvalidMessage::OutOfRange { field, value, limit: i64::MAX });
        }
        Ok(Self {
            batch: batch_id("batch_id", request.batch_id)?,
            cluster_key: cluster_key("cluster_key", request.cluster_key)?,
            nodeset,
            uid: text("uid", request.uid, MAX_ID)?.into(),
            generation: request.generation,
            basis: request.basis.map(Basis::try_from).transpose()?,
            ops,
        })
    }
}

impl From<Begin> for proto::BeginRequest {
    fn from(request: Begin) -> Self {
        let Ops { creates, deletes, others } = request.ops;
        Self {
            batch_id: Some(request.batch.into()),
            cluster_key: request.cluster_key,
            namespace: request.nodeset.namespace.to_string(),
            name: request.nodeset.name.to_string(),
            uid: request.uid.to_string(),
            generation: request.generation,
            basis: request.basis.map(Into::into),
            creates,
            deletes,
            others,
        }
    }
}

impl From<Answer> for proto::BeginResponse {
    fn from(answer: Answer) -> Self {
        use proto::begin_response::Answer as Message;
        let answer = match answer {
            Answer::Granted(Granted { creates, deletes }) => {
                Message::Granted(proto::Granted { creates, deletes })
            }
            Answer::NotOwner(membership) => {
                Message::NotOwner(proto::NotOwner { membership: Some(membership.into()) })
            }
            Answer::Wait(Wait { after, reason }) => Message::Wait(proto::Wait {
                after: duration_message(after),
                reason: proto::WaitReason::from(reason).into(),
            }),
            Answer::NeedFresh(basis) => Message::NeedFresh(proto::NeedFresh { basis: Some(basis.into()) }),
        };
        Self { answer: Some(answer) }
    }
}

impl TryFrom<proto::BeginResponse> for Answer {
    type Error = InvalidMessage;

    fn try_from(response: proto::BeginResponse) -> Result<Self, InvalidMessage> {
        use proto::begin_response::Answer as Message;
        Ok(match response.answer.ok_or(InvalidMessage::Missing("answer"))? {
            Message::Granted(proto::Granted { creates, deletes }) => {
                Self::Granted(Granted { creates, deletes })
            }
            Message::NotOwner(proto::NotOwner { membership }) => {
                Self::NotOwner(membership.ok_or(InvalidMessage::Missing("membership"))?.try_into()?)
            }
            Message::Wait(wait) => {
                let reason = wait.reason();
                Self::Wait(Wait { after: duration("after", wait.after)?, reason: reason.into() })
            }
            Message::NeedFresh(proto::NeedFresh { basis }) => {
                Self::NeedFresh(basis.ok_or(InvalidMessage::Missing("basis"))?.try_into()?)
            }
        })
    }
}

impl From<WaitReason> for proto::WaitReason {
    fn from(reason: WaitReason) -> Self {
        match reason {
            WaitReason::OpenBatch => Self::OpenBatch,
            WaitReason::HalfOpen => Self::HalfOpen,
            WaitReason::Budget => Self::Budget,
            WaitReason::Stopping => Self::Stopping,
        }
    }
}

impl From<proto::WaitReason> for WaitReason {
    /// A reason that only a newer service knows makes the replica wait as for an open batch.
    fn from(reason: proto::WaitReason) -> Self {
        match reason {
            proto::WaitReason::HalfOpen => Self::HalfOpen,
            proto::WaitReason::Budget => Self::Budget,
            proto::WaitReason::Stopping => Self::Stopping,
            proto::WaitReason::OpenBatch | proto::WaitReason::Unspecified => Self::OpenBatch,
        }
    }
}

impl From<Membership> for proto::Membership {
    fn from(membership: Membership) -> Self {
        Self {
            epoch: membership.epoch.as_str().to_owned(),
            version: membership.version,
            replica_ids: membership.live.iter().map(|replica| replica.as_str().to_owned()).collect(),
            lease: duration_message(membership.lease),
            grace: duration_message(membership.grace),
        }
    }
}

impl TryFrom<proto::Membership> for Membership {
    type Error = InvalidMessage;

    fn try_from(membership: proto::Membership) -> Result<Self, InvalidMessage> {
        Ok(Self {
            epoch: text("epoch", membership.epoch, MAX_ID)?.into(),
            version: membership.version,
            live: membership
                .replica_ids
                .into_iter()
                .map(|replica| Ok(text("replica_ids", replica, MAX_ID)?.into()))
                .collect::<Result<_, _>>()?,
            lease: duration("lease", membership.lease)?,
            grace: duration("grace", membership.grace)?,
        })
    }
}

impl TryFrom<proto::Heartbeat> for Heartbeat {
    type Error = InvalidMessage;

    fn try_from(heartbeat: proto::Heartbeat) -> Result<Self, InvalidMessage> {
        let replica = text("replica_id", heartbeat.replica_id, MAX_ID)?.into();
        Ok(Self { replica, leaving: heartbeat.leaving })
    }
}

impl From<Basis> for proto::Basis {
    fn from(basis: Basis) -> Self {
        Self { epoch: basis.epoch.as_str().to_owned(), number: basis.number }
    }
}

impl TryFrom<proto::Basis> for Basis {
    type Error = InvalidMessage;

    fn try_from(basis: proto::Basis) -> Result<Self, InvalidMessage> {
        Ok(Self { epoch: text("basis.epoch", basis.epoch, MAX_ID)?.into(), number: basis.number })
    }
}

impl From<BatchId> for proto::BatchId {
    fn from(batch: BatchId) -> Self {
        Self { replica_id: batch.replica.as_str().to_owned(), counter: batch.counter }
    }
}

/// The batch id of a request.
pub fn batch_id(field: &'static str, batch: Option<proto::BatchId>) -> Result<BatchId, InvalidMessage> {
    let proto::BatchId { replica_id, counter } = batch.ok_or(InvalidMessage::Missing(field))?;
    let replica: ReplicaId = text("batch_id.replica_id", replica_id, MAX_ID)?.into();
    Ok(BatchId { replica, counter })
}

/// The cluster keys of a heartbeat.
pub fn cluster_keys(clusters: proto::Clusters) -> Result<Vec<String>, InvalidMessage> {
    clusters.keys.into_iter().map(|key| cluster_key("clusters.keys", key)).collect()
}

fn cluster_key(field: &'static str, key: String) -> Result<String, InvalidMessage> {
    let key = text(field, key, MAX_CLUSTER_KEY)?;
    let parts = key.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    if parts.is_none() {
        return Err(InvalidMessage::NoClusterKey(field));
    }
    Ok(key)
}

fn text(field: &'static str, value: String, limit: usize) -> Result<String, InvalidMessage> {
    match value.len() {
        0 => Err(InvalidMessage::Missing(field)),
        length if length > limit => Err(InvalidMessage::TooLong { field, length, limit }),
        _ => Ok(value),
    }
}

fn number(field: &'static str, value: u32, limit: u32) -> Result<u32, InvalidMessage> {
    if value > limit {
        return Err(InvalidMessage::OutOfRange { field, value: value.into(), limit: limit.into() });
    }
    Ok(value)
}

fn duration(field: &'static str, value: Option<ProtoDuration>) -> Result<Duration, InvalidMessage> {
    let value = value.ok_or(InvalidMessage::Missing(field))?;
    let seconds = value.seconds;
    value.try_into().map_err(|_| InvalidMessage::OutOfRange { field, value: seconds, limit: i64::MAX })
}

/// A duration as a message. None of the protocol's durations is too long for one.
pub fn duration_message(duration: Duration) -> Option<ProtoDuration> {
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{InvalidMessage, MAX_REQUESTED, OPS_PER_BATCH};
    use crate::messages::{
        Answer, Basis, BatchId, Begin, Granted, Heartbeat, Membership, NodeSetName, Ops, Wait, WaitReason,
    };
    use crate::proto;
    use proptest::prelude::{any, proptest};
    use prost::Message;
    use rstest::rstest;
    use std::time::Duration;

    fn request() -> Begin {
        Begin {
            batch: BatchId { replica: "r".into(), counter: 7 },
            cluster_key: "slurm/blue".into(),
            nodeset: NodeSetName { namespace: "slurm".into(), name: "gpu".into() },
            uid: "u".into(),
            generation: 3,
            basis: Some(Basis { epoch: "e".into(), number: 9 }),
            ops: Ops { creates: 1, deletes: 2, others: 3 },
        }
    }

    fn membership() -> Membership {
        Membership {
            epoch: "e".into(),
            version: 4,
            live: vec!["r-0".into(), "r-1".into()],
            lease: Duration::from_secs(25),
            grace: Duration::from_millis(35_500),
        }
    }

    #[rstest]
    #[case::with_basis(request())]
    #[case::without_basis(Begin { basis: None, ..request() })]
    fn request_is_the_same_after_a_round_trip(#[case] request: Begin) {
        assert_eq!(Begin::try_from(proto::BeginRequest::from(request.clone())), Ok(request));
    }

    #[rstest]
    #[case(Answer::Granted(Granted { creates: 1, deletes: 2 }))]
    #[case(Answer::NotOwner(membership()))]
    #[case(Answer::Wait(Wait { after: Duration::from_millis(1_500), reason: WaitReason::OpenBatch }))]
    #[case(Answer::Wait(Wait { after: Duration::ZERO, reason: WaitReason::HalfOpen }))]
    #[case(Answer::Wait(Wait { after: Duration::ZERO, reason: WaitReason::Budget }))]
    #[case(Answer::Wait(Wait { after: Duration::ZERO, reason: WaitReason::Stopping }))]
    #[case(Answer::NeedFresh(Basis { epoch: "e".into(), number: 1 }))]
    fn answer_is_the_same_after_a_round_trip(#[case] answer: Answer) {
        assert_eq!(Answer::try_from(proto::BeginResponse::from(answer.clone())), Ok(answer));
    }

    #[test]
    fn reason_of_a_newer_service_is_treated_as_an_open_batch() {
        let wait = proto::Wait { after: Some(prost_types::Duration::default()), reason: 99 };
        let response = proto::BeginResponse { answer: Some(proto::begin_response::Answer::Wait(wait)) };
        let expected = Wait { after: Duration::ZERO, reason: WaitReason::OpenBatch };
        assert_eq!(Answer::try_from(response), Ok(Answer::Wait(expected)));
    }

    #[rstest]
    #[case::no_batch(|request: &mut proto::BeginRequest| request.batch_id = None, "batch_id is missing")]
    #[case::no_replica(
        |request: &mut proto::BeginRequest| request.batch_id = Some(proto::BatchId::default()),
        "batch_id.replica_id is missing"
    )]
    #[case::no_name(|request: &mut proto::BeginRequest| request.name.clear(), "name is missing")]
    #[case::long_name(
        |request: &mut proto::BeginRequest| request.name = "n".repeat(254),
        "name has 254 bytes, more than 253"
    )]
    #[case::long_namespace(
        |request: &mut proto::BeginRequest| request.namespace = "n".repeat(64),
        "namespace has 64 bytes, more than 63"
    )]
    #[case::long_uid(
        |request: &mut proto::BeginRequest| request.uid = "u".repeat(129),
        "uid has 129 bytes, more than 128"
    )]
    #[case::cluster_without_namespace(
        |request: &mut proto::BeginRequest| request.cluster_key = "/blue".into(),
        "cluster_key is not <namespace>/<name>"
    )]
    #[case::cluster_without_slash(
        |request: &mut proto::BeginRequest| request.cluster_key = "blue".into(),
        "cluster_key is not <namespace>/<name>"
    )]
    #[case::negative_generation(
        |request: &mut proto::BeginRequest| request.generation = -1,
        "generation is -1, and must be between 0 and 9223372036854775807"
    )]
    #[case::basis_without_epoch(
        |request: &mut proto::BeginRequest| request.basis = Some(proto::Basis::default()),
        "basis.epoch is missing"
    )]
    #[case::too_many_creates(
        |request: &mut proto::BeginRequest| request.creates = MAX_REQUESTED + 1,
        "creates is 1000001, and must be between 0 and 1000000"
    )]
    #[case::too_many_deletes(
        |request: &mut proto::BeginRequest| request.deletes = u32::MAX,
        "deletes is 4294967295, and must be between 0 and 1000000"
    )]
    #[case::too_many_others(
        |request: &mut proto::BeginRequest| request.others = OPS_PER_BATCH + 1,
        "others is 1001, and must be between 0 and 1000"
    )]
    fn invalid_request_is_refused_with_the_name_of_the_field(
        #[case] spoil: fn(&mut proto::BeginRequest),
        #[case] message: &str,
    ) {
        let mut request = proto::BeginRequest::from(request());
        spoil(&mut request);
        assert_eq!(Begin::try_from(request).unwrap_err().to_string(), message);
    }

    #[test]
    fn negative_duration_is_refused() {
        let mut message = proto::Membership::from(membership());
        message.lease = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let error = Membership::try_from(message).unwrap_err();
        assert_eq!(error, InvalidMessage::OutOfRange { field: "lease", value: -1, limit: i64::MAX });
    }

    #[test]
    fn heartbeat_without_replica_is_refused() {
        let heartbeat = Heartbeat::try_from(proto::Heartbeat::default());
        assert_eq!(heartbeat, Err(InvalidMessage::Missing("replica_id")));
    }

    proptest! {
        /// What a foreign client sends may be anything.
        #[test]
        fn arbitrary_bytes_are_refused_or_converted(bytes: Vec<u8>) {
            if let Ok(request) = proto::BeginRequest::decode(bytes.as_slice()) {
                let _ = Begin::try_from(request);
            }
            if let Ok(heartbeat) = proto::Heartbeat::decode(bytes.as_slice()) {
                let _ = Heartbeat::try_from(heartbeat);
            }
            if let Ok(response) = proto::BeginResponse::decode(bytes.as_slice()) {
                let _ = Answer::try_from(response);
            }
        }

        #[test]
        fn numbers_within_the_limits_are_kept(
            creates in 0..=MAX_REQUESTED,
            deletes in 0..=MAX_REQUESTED,
            others in 0..=OPS_PER_BATCH,
            generation in 0..i64::MAX,
            counter in any::<u64>(),
        ) {
            let batch = BatchId { counter, ..request().batch };
            let request = Begin { batch, generation, ops: Ops { creates, deletes, others }, ..request() };
            assert_eq!(Begin::try_from(proto::BeginRequest::from(request.clone())), Ok(request));
        }
    }
}
