//! What clusters are for, and what each kind is made of. Data only.

use super::components::Component;
use super::golang::Program;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::fmt;

/// What a cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// The API and its built-in controllers, no nodes: for tests of controllers.
    ControlPlane,
}

impl Profile {
    /// The components: those of a wave start side by side when those of the wave before do their work.
    pub fn waves(self) -> &'static [&'static [Component]] {
        use Component::{Apiserver, ControllerManager, Etcd};
        // Without the controller manager there are no default service accounts, no garbage collection, and a deleted
        // namespace stays.
        match self {
            Self::ControlPlane => &[&[Etcd, Apiserver], &[ControllerManager]],
        }
    }

    /// Debian packages that the profile uses.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane => &["catatonit", "iproute2", "libc-bin", "mount", "util-linux"],
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

/// The programs that commands in a cluster find in their PATH.
pub const TOOLS: [Program; 2] = [Program::KUBECTL, Program::HELM];
