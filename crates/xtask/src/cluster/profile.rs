//! The profiles of clusters and their components. Data only.

use super::components::Component;
use super::golang::Program;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::fmt;

/// The purpose of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// One real node that runs pods, for end-to-end tests.
    Node,
    /// API server and built-in controllers without nodes, and a scheduler for pods with schedulerName `on-request`, for
    /// tests of controllers.
    ControlPlane,
    /// Any number of simulated nodes with simulated pods, for tests of scale.
    Scale,
}

impl Profile {
    /// The components in waves: those of a wave start in parallel once the previous wave is healthy.
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

/// The programs in the PATH of commands in a cluster.
pub const TOOLS: [Program; 2] = [Program::KUBECTL, Program::HELM];
