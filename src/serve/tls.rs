//! Encrypted connections: TLS, by rustls.

use crate::files;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Largest file of certificates or of a key, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Who the server is, by the files that say so.
pub struct Identity {
    certificates: PathBuf,
    key: PathBuf,
    now: RwLock<TlsAcceptor>,
}

impl Identity {
    /// A file with the server's certificate and those that lead to one that clients know, and one with its key, both in PEM.
    ///
    /// # Errors
    /// One of them cannot be read, or the key is not that of the certificate.
    pub fn read(certificates: &Path, key: &Path) -> Result<Identity> {
        let now = RwLock::new(acceptor(certificates, key)?);
        Ok(Identity { certificates: certificates.to_owned(), key: key.to_owned(), now })
    }

    /// Reads the files anew. Where that fails, those before go on.
    ///
    /// # Errors
    /// As [`Identity::read`].
    pub fn reload(&self) -> Result<()> {
        let new = acceptor(&self.certificates, &self.key)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// What takes a connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor> {
    let place = certificates.display();
    let text = files::read(certificates, MAX_FILE)?;
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let chain = chain.with_context(|| format!("`{place}` has no certificates in PEM"))?;
    ensure!(!chain.is_empty(), "`{place}` has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----");
    let place = key.display();
    let secret = PrivateKeyDer::from_pem_slice(&files::read(key, MAX_FILE)?);
    let secret = secret.with_context(|| format!("`{place}` has no private key in PEM"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().context("there is no version of TLS")?;
    let config = config.with_no_client_auth().with_single_cert(chain, secret);
    let mut config = config.with_context(|| {
        format!("the key in `{place}` and the certificate in `{}` do not fit", certificates.display())
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
