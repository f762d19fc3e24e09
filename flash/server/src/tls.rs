// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates: loads them from files, selects one for each handshake, and replaces them while the server runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The only protocol that is served (RFC 7301).
const PROTOCOL: &[u8] = b"http/1.1";
/// A file that is longer is neither a certificate nor a key.
const MAX_FILE: u64 = 1 << 20;

/// A certificate with those that lead to its issuer, and its key: files in the PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The certificates of an address. A client that names none of their hosts is shown the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub pairs: Vec<Pair>,
}

/// What the connections of an address share.
pub struct Tls {
    pub config: Arc<ServerConfig>,
    settings: Settings,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// # Errors
    ///
    /// A file cannot be read or is not what it should be; the error names it.
    pub fn load(settings: &Settings) -> Result<Tls> {
        Tls::load_after(settings, None)
    }

    /// As `load`. Tickets of sessions with `before`, which had the same address, are accepted.
    ///
    /// # Errors
    ///
    /// As of `load`.
    pub fn load_after(settings: &Settings, before: Option<&Tls>) -> Result<Tls> {
        let certificates = Arc::new(Certificates(ArcSwap::from_pointee(Set::load(settings)?)));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&certificates) as _;
        let mut config = builder
            .with_safe_default_protocol_versions()
            .context("no version of TLS")?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Sessions are in the tickets alone: a table of sessions would have a lock that loops wait for.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = match before {
            Some(before) => Arc::clone(&before.config.ticketer),
            None => tickets()?,
        };
        Ok(Tls {
            config: Arc::new(config),
            settings: settings.clone(),
            certificates,
        })
    }

    /// Reads the files again. Handshakes that begin later are shown the new certificates.
    ///
    /// # Errors
    ///
    /// As of `load`; the certificates that are in use stay.
    pub fn reload(&self) -> Result<()> {
        let set = Set::load(&self.settings)?;
        self.certificates.0.store(Arc::new(set));
        Ok(())
    }

    /// Whether the files can be loaded again.
    ///
    /// # Errors
    ///
    /// As of `load`.
    pub fn check(&self) -> Result<()> {
        Set::load(&self.settings).map(drop)
    }
}

/// Keys for tickets, replaced every 6 hours.
fn tickets() -> Result<Arc<dyn ProducesTickets>> {
    ring::Ticketer::new().context("no random bytes for the keys of session tickets")
}

#[derive(Debug)]
struct Certificates(ArcSwap<Set>);

#[derive(Debug)]
struct Set {
    keys: Vec<Arc<CertifiedKey>>,
    /// By host name, or by `*.` and the name of a domain: places in `keys`.
    by_name: HashMap<String, Vec<usize>>,
}

impl Set {
    fn load(settings: &Settings) -> Result<Set> {
        let mut set = Set {
            keys: Vec::new(),
            by_name: HashMap::new(),
        };
        for pair in &settings.pairs {
            let key = load_pair(pair)?;
            let at = set.keys.len();
            for name in names(&key, &pair.cert)? {
                set.by_name.entry(name).or_default().push(at);
            }
            set.keys.push(Arc::new(key));
        }
        if set.keys.is_empty() {
            bail!("an address for TLS needs a certificate and its key");
        }
        Ok(set)
    }

    /// Those for a host, in the order of the settings; all if there are none for it.
    fn find(&self, host: Option<&str>) -> Vec<&Arc<CertifiedKey>> {
        let found = host.and_then(|host| {
            let exact = self.by_name.get(host);
            exact.or_else(|| {
                let (_, domain) = host.split_once('.')?;
                self.by_name.get(&format!("*.{domain}"))
            })
        });
        match found {
            Some(places) => places.iter().map(|place| &self.keys[*place]).collect(),
            None => self.keys.iter().collect(),
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let set = self.0.load();
        let host = hello.server_name().map(str::to_ascii_lowercase);
        let found = set.find(host.as_deref());
        // A host may have an ECDSA and an RSA certificate.
        let schemes = hello.signature_schemes();
        let fits = |key: &&&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let key = found.iter().find(fits).or(found.first());
        key.map(|key| Arc::clone(key))
    }
}

fn load_pair(pair: &Pair) -> Result<CertifiedKey> {
    let (cert, key) = (pair.cert.display(), pair.key.display());
    let text = read(&pair.cert)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.with_context(|| format!("{cert} is not in the PEM format"))?;
    if chain.is_empty() {
        bail!("{cert} has no certificate in the PEM format");
    }
    let private = PrivateKeyDer::from_pem_slice(&read(&pair.key)?)
        .with_context(|| format!("{key} has no private key in the PEM format"))?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            anyhow::anyhow!("the key {key} does not belong to the certificate {cert}")
        }
        error => anyhow::anyhow!("cannot use the certificate {cert} with the key {key}: {error}"),
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let named = || format!("cannot read {}", path.display());
    let status = std::fs::metadata(path).with_context(named)?;
    if !status.is_file() || status.len() > MAX_FILE {
        bail!("{} is not a file of at most 1 MiB", path.display());
    }
    std::fs::read(path).with_context(named)
}

/// The names of hosts for which a certificate is valid.
fn names(key: &CertifiedKey, path: &Path) -> Result<Vec<String>> {
    let named = || format!("the certificate {} cannot be parsed", path.display());
    let der = key.end_entity_cert().with_context(named)?;
    let cert = webpki::EndEntityCert::try_from(der).map_err(|error| anyhow::anyhow!("{error:?}"));
    let cert = cert.with_context(named)?;
    Ok(cert
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Writes a new certificate and its key.
    pub fn make_pair(place: &Path, name: &str, hosts: &[&str]) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_string()).collect();
        let made = rcgen::generate_simple_self_signed(hosts).expect("a certificate");
        let pair = Pair {
            cert: place.join(format!("{name}.pem")),
            key: place.join(format!("{name}.key")),
        };
        std::fs::write(&pair.cert, made.cert.pem()).expect("room");
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).expect("room");
        pair
    }

    #[test]
    fn a_host_is_shown_its_certificate() {
        let place = tempfile::tempdir().expect("a directory");
        let pairs = [
            make_pair(place.path(), "a", &["a.example"]),
            make_pair(place.path(), "b", &["*.b.example", "b.example"]),
        ];
        let pairs = pairs.to_vec();
        let set = Set::load(&Settings { pairs }).expect("they are right");
        let first = |host: Option<&str>| {
            let found = set.find(host);
            set.keys.iter().position(|key| Arc::ptr_eq(key, found[0]))
        };
        assert_eq!(first(Some("a.example")), Some(0));
        assert_eq!(first(Some("b.example")), Some(1));
        assert_eq!(first(Some("x.b.example")), Some(1));
        // A wildcard is for one label (RFC 9525, 6.3).
        assert_eq!(first(Some("y.x.b.example")), Some(0));
        assert_eq!(first(Some("other")), Some(0));
        assert_eq!(first(None), Some(0));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let good = make_pair(place.path(), "good", &["a"]);
        let other = make_pair(place.path(), "other", &["a"]);
        let error = |cert: &Path, key: &Path| {
            let pair = Pair {
                cert: cert.to_path_buf(),
                key: key.to_path_buf(),
            };
            let pairs = vec![pair];
            let loaded = Tls::load(&Settings { pairs });
            format!("{:#}", loaded.err().expect("an error"))
        };
        let text = error(&good.cert, &other.key);
        assert!(text.contains("other.key does not belong to"), "{text}");
        let text = error(&good.key, &good.key);
        assert!(text.contains("good.key has no certificate"), "{text}");
        let text = error(&good.cert, &good.cert);
        assert!(text.contains("good.pem has no private key"), "{text}");
        let text = error(Path::new("/no/such"), &good.key);
        assert!(text.contains("cannot read /no/such: No such"), "{text}");
        let text = error(Path::new("/dev/zero"), &good.key);
        assert!(text.contains("/dev/zero is not a file"), "{text}");
        assert!(Tls::load(&Settings::default()).is_err());
    }

    #[test]
    fn bad_new_certificates_leave_the_old_ones() {
        let place = tempfile::tempdir().expect("a directory");
        let pair = make_pair(place.path(), "a", &["a.example"]);
        let pairs = vec![pair.clone()];
        let tls = Tls::load(&Settings { pairs }).expect("they are right");
        let current = || tls.certificates.0.load().keys[0].cert.clone();
        let first = current();
        std::fs::write(&pair.cert, "nonsense").expect("room");
        assert!(tls.reload().is_err());
        assert_eq!(current(), first);
        make_pair(place.path(), "a", &["a.example"]);
        tls.reload().expect("they are right");
        assert_ne!(current(), first);
    }
}
