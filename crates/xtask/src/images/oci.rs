//! Writes OCI archives: one image layout per tar, with any number of images that share layers.

use super::catalog::Image;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tar::{Builder, Header};

/// An uncompressed layer: it is never sent over a network, so compression would only cost time. The digests of blob and
/// content are the same.
pub struct Layer {
    tar: PathBuf,
    digest: String,
    size: u64,
}

impl Layer {
    /// The layer of one tar file.
    pub fn from_tar(tar: PathBuf) -> Result<Self> {
        let mut hasher = Sha256::new();
        let size = File::open(&tar).and_then(|mut file| io::copy(&mut file, &mut hasher));
        let size = size.with_context(|| format!("hashing {}", tar.display()))?;
        Ok(Self { tar, digest: format!("{:x}", hasher.finalize()), size })
    }

    fn descriptor(&self) -> Value {
        descriptor("application/vnd.oci.image.layer.v1.tar", &self.digest, self.size)
    }
}

/// Writes an archive of `images`, each with all `layers`.
pub fn write_archive<'a>(
    path: &Path,
    layers: &[Layer],
    images: impl Iterator<Item = &'a Image>,
) -> Result<()> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut archive = Archive(Builder::new(file));
    archive.json("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}))?;
    for layer in layers {
        let blob = File::open(&layer.tar).with_context(|| format!("opening {}", layer.tar.display()))?;
        archive.blob(&layer.digest, layer.size, blob)?;
    }
    let mut manifests = Vec::new();
    for image in images {
        let config = archive.json_blob("application/vnd.oci.image.config.v1+json", &config(image, layers))?;
        let manifest = manifest(&config, layers);
        let mut descriptor = archive.json_blob("application/vnd.oci.image.manifest.v1+json", &manifest)?;
        descriptor["annotations"] = json!({"io.containerd.image.name": image.reference()});
        manifests.push(descriptor);
    }
    archive.json("index.json", &json!({"schemaVersion": 2, "manifests": manifests}))?;
    archive.0.into_inner()?;
    Ok(())
}

/// The image configuration.
fn config(image: &Image, layers: &[Layer]) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.arguments,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/tmp",
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect::<Vec<_>>(),
        },
    })
}

fn manifest(config: &Value, layers: &[Layer]) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers.iter().map(Layer::descriptor).collect::<Vec<_>>(),
    })
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

/// The tar of an image layout.
struct Archive(Builder<File>);

impl Archive {
    fn json(&mut self, name: &str, value: &Value) -> Result<()> {
        let text = serde_json::to_vec(value)?;
        self.entry(name, u64::try_from(text.len())?, text.as_slice())
    }

    /// Adds a JSON blob and returns its descriptor.
    fn json_blob(&mut self, media_type: &str, value: &Value) -> Result<Value> {
        let text = serde_json::to_vec(value)?;
        let digest = format!("{:x}", Sha256::digest(&text));
        let size = u64::try_from(text.len())?;
        self.blob(&digest, size, text.as_slice())?;
        Ok(descriptor(media_type, &digest, size))
    }

    fn blob(&mut self, digest: &str, size: u64, content: impl Read) -> Result<()> {
        self.entry(&format!("blobs/sha256/{digest}"), size, content)
    }

    fn entry(&mut self, name: &str, size: u64, content: impl Read) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        self.0.append_data(&mut header, name, content).with_context(|| format!("writing {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::catalog::{ALL, PAUSE};
    use std::collections::BTreeMap;
    use std::fs;

    /// A directory that is removed when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entries(archive: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut tar = tar::Archive::new(File::open(archive).unwrap());
        let mut found = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let name = entry.path().unwrap().display().to_string();
            assert!(found.insert(name.clone(), content).is_none(), "duplicate entry {name}");
        }
        found
    }

    /// The JSON blob of a descriptor, whose digest and size have to match.
    fn follow(entries: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Value {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let blob = &entries[&format!("blobs/sha256/{digest}")];
        assert_eq!(format!("{:x}", Sha256::digest(blob)), digest);
        assert_eq!(descriptor["size"], blob.len());
        serde_json::from_slice(blob).unwrap_or(Value::Null)
    }

    #[test]
    fn index_leads_to_manifest_config_and_layers_of_every_image() {
        let scratch = Scratch::new("oci");
        let layers = ["lower", "upper"].map(|name| {
            let tar = scratch.0.join(name);
            fs::write(&tar, name).unwrap();
            Layer::from_tar(tar).unwrap()
        });
        let archive = scratch.0.join("images.tar");
        write_archive(&archive, &layers, ALL.iter()).unwrap();

        let entries = entries(&archive);
        let index: Value = serde_json::from_slice(&entries["index.json"]).unwrap();
        let manifests = index["manifests"].as_array().unwrap();
        for (manifest, image) in manifests.iter().zip(ALL) {
            assert_eq!(manifest["annotations"]["io.containerd.image.name"], image.reference());
        }
        assert_eq!(manifests.len(), ALL.len());
        for manifest in manifests {
            let manifest = follow(&entries, manifest);
            let config = follow(&entries, &manifest["config"]);
            let digests: Vec<&Value> = manifest["layers"]
                .as_array()
                .unwrap()
                .iter()
                .inspect(|layer| drop(follow(&entries, layer)))
                .map(|layer| &layer["digest"])
                .collect();
            assert_eq!(digests.len(), 2);
            assert_eq!(config["rootfs"]["diff_ids"], json!(digests));
        }
    }

    #[test]
    fn config_has_the_entrypoint_and_a_writable_working_directory() {
        let config = config(&PAUSE, &[]);
        assert_eq!(config["os"], "linux");
        assert_eq!(config["config"]["Entrypoint"], json!(PAUSE.entrypoint));
        assert_eq!(config["config"]["Cmd"], json!([]));
        assert_eq!(config["config"]["WorkingDir"], "/tmp");
    }

    #[test]
    fn error_names_the_missing_layer() {
        let error = Layer::from_tar("absent.tar".into()).err().unwrap();
        assert!(format!("{error:#}").contains("absent.tar"), "{error:#}");
    }
}
