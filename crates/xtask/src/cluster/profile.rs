//! What clusters are for, and what each kind is made of. Data only.

use super::components::Component;
use super::golang::Program;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::fmt;

/// What a cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// One real node that runs pods: for tests of everything together.
    Node,
    /// The API and its built-in controllers, no nodes, a scheduler for pods whose schedulerName is `on-request`: for tests
    /// of controllers.
    ControlPlane,
    /// As many simulated nodes as wanted, whose pods only seem to run: for tests of scale.
    Scale,
}

impl Profile {
    /// The components: those of a wave start side by side when those of the wave before do their work.
    ///
    /// Every profile has the controller manager: without it there are no default service accounts and no garbage
    /// collection, and a deleted namespace stays.
    pub fn waves(self) -> &'static [&'static [Component]] {
        use Component::{
            Apiserver, Containerd, ControllerManager, Dns, Etcd, Kubelet, Kwok, Proxy, Scheduler,
            SchedulerOnRequest, VolumeProvisioner,
        };
        match self {
            Self::Node => &[
                &[Etcd, Containerd, Apiserver],
                &[ControllerManager, Scheduler, Kubelet, Proxy, Dns, VolumeProvisioner],
            ],
            Self::ControlPlane => &[&[Etcd, Apiserver], &[ControllerManager, SchedulerOnRequest]],
            Self::Scale => &[&[Etcd, Apiserver], &[ControllerManager, Scheduler, Kwok, VolumeProvisioner]],
        }
    }

    /// The components, in the order in which they start.
    pub fn components(self) -> impl Iterator<Item = Component> {
        self.waves().iter().copied().flatten().copied()
    }

    /// Debian packages that the profile uses.
    pub fn packages(self) -> Vec<&'static str> {
        let mut packages =
            vec!["catatonit", "coreutils", "dash", "iproute2", "libc-bin", "mount", "util-linux"];
        if self == Self::Node {
            packages.extend([
                "conntrack",
                "containerd",
                "containernetworking-plugins",
                "iptables",
                "kmod",
                "runc",
            ]);
        }
        packages
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

/// The programs that commands in a cluster find in their PATH.
pub const TOOLS: [Program; 2] = [Program::KUBECTL, Program::HELM];
