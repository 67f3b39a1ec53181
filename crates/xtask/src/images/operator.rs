//! The images of the operator, built by buildah from the Dockerfiles of this repository.
//!
//! The stage that compiles runs in our own builder image with the Rust toolchain, the downloaded crates and a target
//! directory of this machine, so that a build after a change of our code compiles our crates only.

use super::catalog::{BUILDER, Base, REGISTRY};
use super::sources::{Key, read_tree};
use crate::WORKSPACE;
use crate::cache;
use crate::commands::{cargo, output, run};
use crate::packages::{self, Requirement};
use crate::progress::step;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs;
use std::io::{self, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use xshell::Shell;

const REQUIREMENTS: [Requirement; 1] = [Requirement::new("buildah", "buildah")];

/// The components and their binaries; an image is named after the component.
const COMPONENTS: [(&str, &str); 8] = [
    ("controller", "controller-controller"),
    ("nodeset", "nodeset-controller"),
    ("loginset", "loginset-controller"),
    ("accounting", "accounting-controller"),
    ("restapi", "restapi-controller"),
    ("token", "token-controller"),
    ("expectations", "expectations"),
    ("webhook", "admission-webhook"),
];

/// What the images depend on. The Dockerfiles copy e2e, xtask and tests, too, but only because they are part of the
/// workspace.
const FILES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "Dockerfile.controller", "Dockerfile.webhook"];
const DIRECTORIES: [&str; 2] = ["crates", "proto"];
const NOT_COMPILED: [&str; 2] = ["xtask", "tests"];

/// How the binaries are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// As published: slow to compile.
    Release,
    /// For a demo and for tests.
    Quick,
}

impl Profile {
    /// The name of Cargo's profile.
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "quick",
        }
    }
}

/// The images of one state of the sources.
pub struct OperatorImages {
    /// The tag, which changes with the sources: so pods of another state are replaced, and others are not.
    pub tag: String,
    directory: PathBuf,
}

impl OperatorImages {
    /// Builds the images, unless those of the same sources are in the cache.
    pub fn build(profile: Profile) -> Result<Self> {
        let key = key(profile)?;
        let tag = format!("{}-{key}", profile.name());
        let directory = cache::entry(CACHE, &tag, |directory| Build::new(directory, profile, &tag)?.run())?;
        forget_others(&directory, profile)?;
        Ok(Self { tag, directory })
    }

    /// The archives, in OCI format.
    pub fn archives(&self) -> Vec<PathBuf> {
        COMPONENTS.iter().map(|(component, _)| self.directory.join(archive(component))).collect()
    }

    /// A line per image: its reference, size, digest and archive.
    pub fn list(&self) -> Result<Vec<String>> {
        let lines = COMPONENTS.iter().zip(self.archives()).map(|((component, _), archive)| {
            let digest = fs::read_to_string(self.directory.join(digest(component)))?;
            let size = fs::metadata(&archive)?.len() / (1 << 10);
            Ok(format!(
                "{} {}.{} MiB {} {}",
                reference(component, &self.tag),
                size >> 10,
                (size & 1023) * 10 / 1024,
                digest.trim(),
                archive.display()
            ))
        });
        lines.collect()
    }
}

const CACHE: &str = "operator-images";

fn archive(component: &str) -> String {
    format!("{component}.tar")
}

fn digest(component: &str) -> String {
    format!("{component}.digest")
}

fn reference(component: &str, tag: &str) -> String {
    format!("{REGISTRY}/slurm-operator-{component}:{tag}")
}

/// A digest of everything that the images are made of.
fn key(profile: Profile) -> Result<String> {
    let (sh, mut key) = (Shell::new()?, Key::default());
    key.add(profile.name()).add(toolchain()?.as_os_str().as_encoded_bytes());
    for file in FILES {
        key.add(sh.read_binary_file(Path::new(WORKSPACE).join(file))?);
    }
    for directory in DIRECTORIES {
        let mut files = read_tree(&Path::new(WORKSPACE).join(directory))?;
        files.retain(|file| {
            !NOT_COMPILED.iter().any(|directory| file.path.iter().any(|part| part == *directory))
        });
        key.add_files(&files);
    }
    Ok(key.finish())
}

/// The Rust toolchain of this repository.
fn toolchain() -> Result<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(WORKSPACE))?;
    Ok(sysroot.into())
}

/// Removes the images of earlier states of the sources, which nothing will use again.
fn forget_others(current: &Path, profile: Profile) -> Result<()> {
    let (sh, parent) = (Shell::new()?, current.parent().context("the cache entry has no parent")?);
    for entry in sh.read_dir(parent)? {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_outdated = entry != current && name.starts_with(&format!("{}-", profile.name()));
        if is_outdated && !name.ends_with(".partial") {
            sh.remove_path(entry)?;
        }
    }
    Ok(())
}

/// A build of all images.
struct Build<'a> {
    /// Where the archives go.
    directory: &'a Path,
    profile: Profile,
    tag: &'a str,
    /// The storage of buildah, which is removed after the build.
    storage: PathBuf,
    toolchain: PathBuf,
    crates: PathBuf,
    target: PathBuf,
}

impl<'a> Build<'a> {
    fn new(directory: &'a Path, profile: Profile, tag: &'a str) -> Result<Self> {
        let cargo_home = match std::env::var_os("CARGO_HOME") {
            Some(home) => PathBuf::from(home),
            None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo"),
        };
        Ok(Self {
            directory,
            profile,
            tag,
            storage: directory.join("storage"),
            toolchain: toolchain()?,
            crates: cargo_home.join("registry"),
            target: cache::root()?.join("operator-target"),
        })
    }

    fn run(&self) -> Result<()> {
        packages::ensure(&REQUIREMENTS)?;
        let builder = super::archive(Base::Linker)?;
        // The build itself needs no network then.
        cargo(&["fetch", "--locked", "--quiet"])?;
        Shell::new()?.create_dir(&self.target)?;
        let built = self.import_builder(&builder).and_then(|()| {
            COMPONENTS.iter().try_for_each(|(component, binary)| {
                step(format!("image {component}"), || self.image(component, binary))
            })
        });
        let cleaned = self.remove_storage();
        built.and(cleaned)
    }

    fn import_builder(&self, archive: &Path) -> Result<()> {
        let mut pull = self.buildah("pull");
        output(pull.arg("--quiet").arg(format!("oci-archive:{}", archive.display())))
            .and_then(|id| output(self.buildah("tag").args([&id, &BUILDER.reference()])))
            .map(drop)
    }

    /// Builds one image and writes its archive and digest.
    fn image(&self, component: &str, binary: &str) -> Result<()> {
        let reference = reference(component, self.tag);
        let file = if component == "webhook" { "Dockerfile.webhook" } else { "Dockerfile.controller" };
        let mut build = self.buildah("build");
        // Without layers: their files have the time stamps of earlier builds, by which Cargo would take changed files for
        // compiled ones.
        build.args(["--isolation", "chroot", "--layers=false", "--timestamp", "0", "--quiet"]);
        build.args(["--build-arg", &format!("BUILDER={}", BUILDER.reference())]);
        build.args(["--build-arg", &format!("PROFILE={}", self.profile.name())]);
        if component != "webhook" {
            build.args(["--build-arg", &format!("BIN={binary}")]);
        }
        let mounts = [
            (&self.toolchain, "/usr/local:ro"),
            (&self.crates, "/root/.cargo/registry"),
            (&self.target, "/target"),
        ];
        for (from, to) in mounts {
            build.arg("--volume").arg(format!("{}:{to}", from.display()));
        }
        build.args(["--tag", &reference, "--file", file, "."]).current_dir(WORKSPACE);
        run(build.stdout(stderr()))?;
        let archive = self.directory.join(archive(component));
        let mut push = self.buildah("push");
        push.args(["--quiet", "--digestfile"]).arg(self.directory.join(digest(component)));
        run(push.arg(&reference).arg(format!("oci-archive:{}:{reference}", archive.display())))
    }

    fn buildah(&self, command: &str) -> Command {
        let mut buildah = Command::new("buildah");
        buildah.arg("--root").arg(self.storage.join("root")).arg("--runroot").arg(self.storage.join("run"));
        buildah.args(["--storage-driver", "overlay"]).arg(command);
        buildah
    }

    /// The storage has mounts of overlayfs while a container exists.
    fn remove_storage(&self) -> Result<()> {
        output(self.buildah("rm").arg("--all"))?;
        match fs::remove_dir_all(&self.storage) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.storage.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::COMPONENTS;
    use crate::WORKSPACE;
    use std::fs;

    fn build_stage(dockerfile: &str) -> String {
        let text = fs::read_to_string(format!("{WORKSPACE}/{dockerfile}")).unwrap();
        let stage = text.split("FROM scratch").next().unwrap();
        stage[stage.find("ARG BUILDER").unwrap()..].to_owned()
    }

    /// Only then one build serves both.
    #[test]
    fn dockerfiles_have_the_same_first_stage() {
        assert_eq!(build_stage("Dockerfile.controller"), build_stage("Dockerfile.webhook"));
    }

    #[test]
    fn dockerfiles_compile_every_component() {
        let stage = build_stage("Dockerfile.controller");
        for (_, binary) in COMPONENTS {
            let pattern = if binary.ends_with("-controller") { "'*-controller'" } else { binary };
            assert_eq!(stage.matches(&format!("-p {pattern} ")).count(), 1, "{binary}");
            assert!(fs::exists(format!("{WORKSPACE}/crates/{binary}/src/main.rs")).unwrap(), "{binary}");
        }
    }
}
