//! The bounds that a kind needs to be watched and cached.

use kube::Resource;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A kind that can be watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}
