//! The profiles of clusters and their components. Data only.

use super::components::Component;
use super::golang::Program;
use crate::packages::Requirement;
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
            Apiserver, Containerd, ControllerManager, ControllerManagerWithoutPodGc, Dns, Etcd, Kubelet,
            Kwok, Proxy, Scheduler, SchedulerOnRequest, VolumeProvisioner,
        };
        match self {
            Self::Node => &[
                &[Etcd, Containerd, Apiserver],
                &[ControllerManager, Scheduler, Kubelet, Proxy, Dns, VolumeProvisioner],
            ],
            Self::ControlPlane => &[&[Etcd, Apiserver], &[ControllerManagerWithoutPodGc, SchedulerOnRequest]],
            Self::Scale => &[&[Etcd, Apiserver], &[ControllerManager, Scheduler, Kwok, VolumeProvisioner]],
        }
    }

    /// The components, in the order in which they start.
    pub fn components(self) -> impl Iterator<Item = Component> {
        self.waves().iter().copied().flatten().copied()
    }

    /// Files of the machine that the profile uses.
    pub fn requirements(self) -> Vec<Requirement> {
        let mut files = vec![
            Requirement::new("catatonit", "catatonit"),
            Requirement::new("/usr/bin/dash", "dash"),
            Requirement::new("getent", "libc-bin"),
            Requirement::new("install", "coreutils"),
            Requirement::new("ip", "iproute2"),
            Requirement::new("mount", "mount"),
            Requirement::new("nsenter", "util-linux"),
        ];
        if self == Self::Node {
            files.extend([
                Requirement::new("/usr/bin/containerd", "containerd"),
                Requirement::new("/usr/lib/cni/ptp", "containernetworking-plugins"),
                Requirement::new("conntrack", "conntrack"),
                Requirement::new("containerd-shim-runc-v2", "containerd"),
                Requirement::new("ctr", "containerd"),
                Requirement::new("iptables", "iptables"),
                Requirement::new("modprobe", "kmod"),
                Requirement::new("runc", "runc"),
            ]);
        }
        files
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", PossibleValue::get_name))
    }
}

/// The programs in the PATH of commands in a cluster.
pub const TOOLS: [Program; 2] = [Program::KUBECTL, Program::HELM];
