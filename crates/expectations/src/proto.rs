//! Types generated from `proto/expectations/v1/expectations.proto`.

#![allow(
    missing_docs,
    unused_qualifications,
    clippy::as_conversions,
    clippy::pedantic,
    reason = "generated; the proto file is the documentation"
)]

tonic::include_proto!("slinky.expectations.v1");

/// Field numbers never change: replicas and service of different versions run side by side.
#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn wire_format_of_begin_is_pinned() {
        let request = BeginRequest {
            batch_id: Some(BatchId { replica_id: "r".into(), counter: 1 }),
            cluster_key: "ns/c".into(),
            namespace: "ns".into(),
            name: "n".into(),
            uid: "u".into(),
            generation: 2,
            basis: Some(Basis { epoch: "e".into(), number: 3 }),
            creates: 4,
            deletes: 5,
            others: 6,
        };
        let bytes: String = request.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, "0a050a0172100112046e732f631a026e7322016e2a017530023a050a01651003400448055006");
        assert_eq!(BeginRequest::decode(request.encode_to_vec().as_slice()).unwrap(), request);
    }

    #[test]
    fn absent_basis_is_not_decoded_as_zero() {
        let decoded = BeginRequest::decode([].as_slice()).unwrap();
        assert_eq!(decoded.basis, None);
    }
}
