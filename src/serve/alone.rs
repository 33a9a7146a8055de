//! Answers without a network: what is asked and what is answered are bytes in memory.

use super::routes::router;
use super::{Options, app, runtime};
use crate::api::failure::Failure;
use anyhow::anyhow;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use http_body_util::BodyExt;
use std::net::IpAddr;
use tokio::runtime::Runtime;
use tower_service::Service;

/// A server without an address: it answers calls of [`Alone::post`] alone.
pub struct Alone {
    runtime: Runtime,
    router: Router,
}

impl Alone {
    /// Opens the models. Options for addresses, connections and signals have no effect.
    ///
    /// # Errors
    /// A model cannot be opened.
    pub fn open(options: Options) -> Result<Alone, Failure> {
        let runtime = runtime()?;
        let router = router(app(options, IpAddr::from([127, 0, 0, 1]))?);
        Ok(Alone { runtime, router })
    }

    /// What `POST` of a body to `path` is answered with: the status, and the whole body.
    ///
    /// # Errors
    /// The path, or a header, is none.
    pub fn post(&self, path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Result<(u16, Vec<u8>), Failure> {
        let mut request = Request::builder().method(Method::POST).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_vec())).map_err(|e| Failure::Usage(e.to_string()))?;
        let mut router = self.router.clone();
        self.runtime.block_on(async move {
            let response = match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|e| anyhow!("{e}"))?;
            Ok((status, body.to_bytes().to_vec()))
        })
    }
}
