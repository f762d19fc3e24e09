//! TLS to the server: which certificates to trust, and the configuration of connections.

use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure, Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, Resumption, WebPkiServerVerifier};
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};

/// The only protocol that is offered (ALPN). A server that requires another one refuses the connection.
const PROTOCOL: &[u8] = b"http/1.1";

/// Which server certificates to trust.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Those signed by the system's authorities.
    #[default]
    System,
    /// Those signed by the authorities in this PEM text.
    Authorities(String),
    /// All certificates.
    All,
}

/// TLS to one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The server's name (SNI), which its certificate has to contain.
    pub name: String,
    pub trust: Trust,
}

impl Trust {
    pub fn read_authorities(path: &Path) -> Result<Trust> {
        let bytes = kit_files::input::read(path)?;
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{} is not a PEM file", path.display()))?;
        let trust = Trust::Authorities(text);
        trust
            .roots()
            .with_context(|| format!("{} has no certificate to use", path.display()))?;
        Ok(trust)
    }

    /// The certificates in the PEM text.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        let text = match self {
            Trust::Authorities(text) => text.as_str(),
            Trust::System | Trust::All => "",
        };
        let all = CertificateDer::pem_slice_iter(text.as_bytes());
        Ok(all.collect::<Result<_, _>>()?)
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match self {
            Trust::All => {}
            Trust::Authorities(_) => {
                for certificate in self.certificates()? {
                    roots.add(certificate)?;
                }
                ensure!(!roots.is_empty(), "it has no certificate");
            }
            Trust::System => {
                let found = rustls_native_certs::load_native_certs();
                // The system's store may have certificates that are too old to be parsed.
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    let why = found
                        .errors
                        .first()
                        .map_or(String::new(), |error| format!(" ({error})"));
                    bail!(
                        "this system trusts no certificate authority{why}: install ca-certificates, or name a \
                         file with --cacert"
                    );
                }
            }
        }
        Ok(roots)
    }
}

impl Tls {
    /// `host` may include a port.
    pub fn new(host: &str, trust: Trust) -> Tls {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        Tls {
            name: name.to_string(),
            trust,
        }
    }

    pub fn server_name(&self) -> Result<ServerName<'static>> {
        ServerName::try_from(self.name.clone())
            .with_context(|| format!("{} is no name of a server", self.name))
    }

    /// Each connection makes a full handshake, as connections of different users do.
    pub fn client(&self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .context("TLS cannot be set up")?;
        let taken = match self.trust {
            Trust::System => None,
            Trust::All => Some(Taken::Any),
            Trust::Authorities(_) => {
                let roots = Arc::new(self.trust.roots()?);
                let authorities =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                let authorities = authorities.build().context("TLS cannot be set up")?;
                Some(Taken::Named(authorities, self.trust.certificates()?))
            }
        };
        let builder = match taken {
            None => builder.with_root_certificates(self.trust.roots()?),
            Some(taken) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Verifier { provider, taken })),
        };
        let mut client = builder.with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Arc::new(client))
    }
}

/// Which certificates are accepted. That the server has the certificate's private key is checked in any case.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    taken: Taken,
}

#[derive(Debug)]
enum Taken {
    /// Certificates that these authorities have signed, and the listed certificates themselves. A self-signed
    /// certificate made with one `openssl` command is its own authority, which is otherwise not allowed for a
    /// server.
    Named(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>),
    Any,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.taken {
            Taken::Any => Ok(ServerCertVerified::assertion()),
            Taken::Named(_, named) if named.iter().any(|named| named == certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            Taken::Named(authorities, _) => {
                authorities.verify_server_cert(certificate, intermediates, name, ocsp_response, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_server_is_its_host_without_the_port() {
        for (host, name) in [
            ("a.example:443", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:8443", "::1"),
            ("[::1]", "::1"),
            ("127.0.0.1:1", "127.0.0.1"),
        ] {
            let tls = Tls::new(host, Trust::All);
            assert_eq!(tls.name, name);
            assert!(tls.server_name().is_ok(), "{host}");
        }
        assert!(Tls::new("a b", Trust::All).server_name().is_err());
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "-----BEGIN KEY-----\n").unwrap();
        let error = Trust::read_authorities(file.path()).unwrap_err();
        assert!(format!("{error:#}").contains("no certificate"), "{error:#}");
    }
}
