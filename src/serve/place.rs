//! The place of a model, in which another one may take its place while requests go on.

use super::metrics::ModelMetrics;
use super::refusal::Refusal;
use super::served::{How, Served};
use super::writer::Writer;
use crate::api::ensemble::load_members;
use crate::api::failure::Failure;
use crate::api::generate::language_of;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// A model that answers.
#[derive(Clone)]
pub enum Answers {
    /// Samples, each by itself.
    Samples(Arc<Served>),
    /// Texts, with what comes next.
    Texts(Arc<Writer>),
}

impl Answers {
    fn open(path: &Path, how: &How, metrics: Arc<ModelMetrics>) -> Result<Answers, Failure> {
        let models = load_members(path, &how.sets)?;
        Ok(match (&models[..], models.first().map(language_of).transpose()?.flatten()) {
            ([model], Some(_)) => Answers::Texts(Arc::new(Writer::open(model, how, metrics)?)),
            (_, Some(_)) => {
                let shown = path.display();
                return Err(Failure::Usage(format!(
                    "`{shown}` has several language models, which do not write together\nhelp: serve one of them"
                )));
            }
            (models, None) => Answers::Samples(Arc::new(Served::open(models, how, metrics)?)),
        })
    }

    /// Whether what it did last went well.
    pub fn is_well(&self) -> bool {
        match self {
            Answers::Samples(served) => served.is_well(),
            Answers::Texts(writer) => writer.is_well(),
        }
    }

    /// What it is, for people and for the page.
    pub fn described(&self, name: &str) -> Value {
        match self {
            Answers::Samples(served) => served.described(name),
            Answers::Texts(writer) => writer.described(name),
        }
    }
}

/// The place of a model.
pub struct Place {
    /// What the model is called.
    pub name: String,
    path: PathBuf,
    how: How,
    metrics: Arc<ModelMetrics>,
    now: RwLock<Answers>,
}

impl Place {
    /// Opens the model in `path`.
    ///
    /// # Errors
    /// It cannot be read, or is none; there is no such device, or not enough memory.
    pub fn open(name: String, path: PathBuf, how: &How, metrics: Arc<ModelMetrics>) -> Result<Place, Failure> {
        let now = RwLock::new(Answers::open(&path, how, Arc::clone(&metrics))?);
        Ok(Place { name, path, how: how.clone(), metrics, now })
    }

    /// The model that answers now. Who has it keeps it, whatever takes its place.
    pub fn now(&self) -> Answers {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The model, if it answers samples.
    ///
    /// # Errors
    /// It writes texts.
    pub fn samples(&self) -> Result<Arc<Served>, Refusal> {
        match self.now() {
            Answers::Samples(served) => Ok(served),
            Answers::Texts(_) => Err(Refusal::bad(format!(
                "`{}` is a language model: POST /v1/completions has it go on with a text",
                self.name
            ))),
        }
    }

    /// The model, if it writes texts.
    ///
    /// # Errors
    /// It answers samples.
    pub fn texts(&self) -> Result<Arc<Writer>, Refusal> {
        match self.now() {
            Answers::Texts(writer) => Ok(writer),
            Answers::Samples(_) => Err(Refusal::bad(format!(
                "`{}` is no language model: POST /predict/{} answers samples",
                self.name, self.name
            ))
            .about("model")),
        }
    }

    /// Opens the file anew, and puts the model in the place of the other. Until then, and where it cannot be read, that one answers.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn reload(&self) -> Result<(), Failure> {
        let opened = Answers::open(&self.path, &self.how, Arc::clone(&self.metrics));
        self.metrics.reloaded(opened.is_ok());
        let opened = opened?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }
}
