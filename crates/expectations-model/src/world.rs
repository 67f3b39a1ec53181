//! The API server and Slurm: what exists, and how an effect changes it.

use crate::guard::{Guard, Guards};

/// The largest number of workers of a NodeSet.
pub const WORKERS: usize = 3;

/// Identity of a NodeSet or a pod.
pub type Uid = u8;

/// A set of ordinals, or of the Nodes of a NodeSet with one worker per Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ordinals(u8);

impl Ordinals {
    pub fn of(ordinals: &[usize]) -> Self {
        Self(ordinals.iter().fold(0, |set, ordinal| set | 1 << ordinal))
    }

    pub fn contains(self, ordinal: usize) -> bool {
        self.0 & 1 << ordinal != 0
    }

    pub fn insert(&mut self, ordinal: usize) {
        self.0 |= 1 << ordinal;
    }

    pub fn remove(&mut self, ordinal: usize) {
        self.0 &= !(1 << ordinal);
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn count(self) -> usize {
        (0..WORKERS).filter(|ordinal| self.contains(*ordinal)).count()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeSet {
    pub uid: Uid,
    /// Stands for the resourceVersion as well: every change of the NodeSet in the model changes its spec.
    pub generation: u8,
    pub wanted: Ordinals,
    /// Deleted, and kept by its finalizer.
    pub deleting: bool,
}

impl NodeSet {
    /// The workers that are to exist.
    pub fn wanted(self) -> Ordinals {
        if self.deleting { Ordinals::default() } else { self.wanted }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    pub version: Version,
    /// The NodeSet that controls it.
    pub owner: Uid,
    pub marked: bool,
    /// The position of its last change among all effects on pods, which is their order in the watch stream.
    pub changed: u8,
}

/// A version of an object, as the precondition of a patch or delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    pub uid: Uid,
    pub resource_version: u8,
}

/// A Slurm node. It outlives its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub drained: bool,
    pub down: bool,
    pub job: bool,
}

impl Node {
    pub fn is_drained_and_idle(self) -> bool {
        self.drained && !self.job
    }

    pub fn takes_jobs(self) -> bool {
        !self.drained && !self.down
    }
}

/// A PersistentVolumeClaim. It is deleted with the pod that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub version: Version,
    pub owner: Option<Uid>,
}

/// Everything whose name derives from one ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    pub pod: Option<Pod>,
    pub node: Option<Node>,
    pub claim: Option<Claim>,
}

impl Worker {
    /// Whether the garbage collector will delete the claim: its owner is gone. A pod that came later does not count.
    pub fn has_stale_claim(&self) -> bool {
        let owner = self.claim.and_then(|claim| claim.owner);
        owner.is_some() && owner != self.pod.map(|pod| pod.version.uid)
    }
}

/// A write that needs a batch, with its preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Creates the pod, and before it the claim if there is none.
    Create(usize),
    Delete(usize, Version),
    Mark(usize, Version),
    Unmark(usize, Version),
    /// Makes the pod the owner of its claim, so that the claim is deleted with it.
    GiveUpClaim(usize, Version, Uid),
    /// Takes the claim back from the pod.
    KeepClaim(usize, Version),
    Drain(usize),
    Undrain(usize),
    SetDown(usize),
    /// Carries the resourceVersion of the NodeSet.
    RemoveFinalizer(u8),
}

/// The kinds of effects that the service counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Create,
    Delete,
    Other,
}

impl Effect {
    pub fn kind(self) -> Kind {
        match self {
            Self::Create(_) => Kind::Create,
            Self::Delete(..) => Kind::Delete,
            Self::Mark(..)
            | Self::Unmark(..)
            | Self::GiveUpClaim(..)
            | Self::KeepClaim(..)
            | Self::Drain(_)
            | Self::Undrain(_)
            | Self::SetDown(_)
            | Self::RemoveFinalizer(_) => Kind::Other,
        }
    }

    pub fn ordinal(self) -> Option<usize> {
        match self {
            Self::Create(ordinal)
            | Self::Delete(ordinal, _)
            | Self::Mark(ordinal, _)
            | Self::Unmark(ordinal, _)
            | Self::GiveUpClaim(ordinal, ..)
            | Self::KeepClaim(ordinal, _)
            | Self::Drain(ordinal)
            | Self::Undrain(ordinal)
            | Self::SetDown(ordinal) => Some(ordinal),
            Self::RemoveFinalizer(_) => None,
        }
    }

    pub fn is_on_slurm(self) -> bool {
        matches!(self, Self::Drain(_) | Self::Undrain(_) | Self::SetDown(_))
    }

    pub fn is_on_pod(self) -> bool {
        matches!(self, Self::Create(_) | Self::Delete(..) | Self::Mark(..) | Self::Unmark(..))
    }

    /// Whether at most one copy of it can take effect, so that an answer to any copy is an answer to all.
    pub fn has_precondition(self) -> bool {
        !self.is_on_slurm() && !matches!(self, Self::Create(_))
    }
}

/// How many effects have landed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Landed {
    pub on_pods: u8,
    pub on_slurm: u8,
}

impl Landed {
    pub fn contains(self, other: Self) -> bool {
        self.on_pods >= other.on_pods && self.on_slurm >= other.on_slurm
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub nodeset: Option<NodeSet>,
    pub workers: [Worker; WORKERS],
    pub landed: Landed,
    last_uid: Uid,
    has_slurm: bool,
    has_claims: bool,
}

impl World {
    /// A NodeSet whose workers run and are idle.
    pub fn new(wanted: Ordinals, running: Ordinals, has_slurm: bool, has_claims: bool) -> Self {
        let nodeset = NodeSet { uid: 1, generation: 1, wanted, deleting: false };
        let mut world = Self {
            nodeset: Some(nodeset),
            workers: Default::default(),
            landed: Landed::default(),
            last_uid: nodeset.uid,
            has_slurm,
            has_claims,
        };
        for ordinal in (0..WORKERS).filter(|ordinal| running.contains(*ordinal)) {
            world.create(ordinal, nodeset.uid);
        }
        world
    }

    pub fn uid(&mut self) -> Uid {
        self.last_uid += 1;
        self.last_uid
    }

    fn first_version(&mut self) -> Version {
        Version { uid: self.uid(), resource_version: 0 }
    }

    /// The pods of a NodeSet.
    pub fn pods_of(&self, owner: Uid) -> Ordinals {
        let mut pods = Ordinals::default();
        for (ordinal, worker) in self.workers.iter().enumerate() {
            if worker.pod.is_some_and(|pod| pod.owner == owner) {
                pods.insert(ordinal);
            }
        }
        pods
    }

    /// Whether the NodeSet of this UID exists.
    pub fn has_nodeset(&self, uid: Uid) -> bool {
        self.nodeset.is_some_and(|nodeset| nodeset.uid == uid)
    }

    /// Performs an effect for a NodeSet, unless its precondition is not met.
    pub fn land(&mut self, effect: Effect, owner: Uid, guards: Guards) -> bool {
        let landed = match effect {
            Effect::Create(ordinal) => self.create(ordinal, owner),
            Effect::Delete(ordinal, version) => self.delete(ordinal, version, guards),
            Effect::Mark(ordinal, version) => self.set_mark(ordinal, version, true),
            Effect::Unmark(ordinal, version) => self.set_mark(ordinal, version, false),
            Effect::GiveUpClaim(ordinal, version, pod) => self.set_claim_owner(ordinal, version, Some(pod)),
            Effect::KeepClaim(ordinal, version) => self.set_claim_owner(ordinal, version, None),
            Effect::Drain(ordinal) => self.set_node(ordinal, |node| node.drained = true),
            Effect::Undrain(ordinal) => {
                self.set_node(ordinal, |node| *node = Node { drained: false, down: false, ..*node })
            }
            Effect::SetDown(ordinal) => self.set_node(ordinal, |node| node.down = true),
            Effect::RemoveFinalizer(version) => self
                .nodeset
                .take_if(|nodeset| nodeset.uid == owner && nodeset.generation == version)
                .is_some(),
        };
        if landed {
            self.landed.on_pods += u8::from(effect.is_on_pod());
            self.landed.on_slurm += u8::from(effect.is_on_slurm());
        }
        landed
    }

    fn create(&mut self, ordinal: usize, owner: Uid) -> bool {
        if self.workers[ordinal].pod.is_some() {
            return false;
        }
        let (version, changed) = (self.first_version(), self.landed.on_pods + 1);
        self.workers[ordinal].pod = Some(Pod { version, owner, marked: false, changed });
        if self.has_slurm {
            self.workers[ordinal].node.get_or_insert_default();
        }
        if self.has_claims && self.workers[ordinal].claim.is_none() {
            let version = self.first_version();
            self.workers[ordinal].claim = Some(Claim { version, owner: None });
        }
        true
    }

    fn delete(&mut self, ordinal: usize, version: Version, guards: Guards) -> bool {
        let is_decided_on = |pod: &mut Pod| {
            pod.version == version || (!guards.has(Guard::ResourceVersion) && pod.version.uid == version.uid)
        };
        self.workers[ordinal].pod.take_if(is_decided_on).is_some()
    }

    fn set_mark(&mut self, ordinal: usize, version: Version, marked: bool) -> bool {
        let changed = self.landed.on_pods + 1;
        match &mut self.workers[ordinal].pod {
            Some(pod) if pod.version == version => {
                pod.version.resource_version += 1;
                (pod.marked, pod.changed) = (marked, changed);
                true
            }
            Some(_) | None => false,
        }
    }

    fn set_claim_owner(&mut self, ordinal: usize, version: Version, owner: Option<Uid>) -> bool {
        match &mut self.workers[ordinal].claim {
            Some(claim) if claim.version == version => {
                claim.version.resource_version += 1;
                claim.owner = owner;
                true
            }
            Some(_) | None => false,
        }
    }

    fn set_node(&mut self, ordinal: usize, set: impl FnOnce(&mut Node)) -> bool {
        self.workers[ordinal].node.as_mut().map(set).is_some()
    }

    /// What the garbage collector deletes for an ordinal: the claim of a pod that is gone, or the pod of a NodeSet that is
    /// gone.
    pub fn has_garbage(&self, ordinal: usize) -> bool {
        let worker = &self.workers[ordinal];
        worker.has_stale_claim() || worker.pod.is_some_and(|pod| !self.has_nodeset(pod.owner))
    }

    pub fn collect_garbage(&mut self, ordinal: usize) {
        let is_orphan = self.workers[ordinal].pod.is_some_and(|pod| !self.has_nodeset(pod.owner));
        let worker = &mut self.workers[ordinal];
        if worker.has_stale_claim() {
            worker.claim = None;
        }
        if is_orphan {
            worker.pod = None;
        }
    }
}
