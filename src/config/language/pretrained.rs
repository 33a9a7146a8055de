//! Weights by name: `torchvision/resnet18`, `hf:owner/model`. A name stands for a file in the user's caches, and for the addresses
//! that it can be had from; nothing here speaks to the network.

use super::known_weights::{HUB_MODELS, Known, MODEL, TORCHVISION_FILES};
use super::sections::Rename;
use crate::config::nearest;
use crate::files::caches;
use std::path::{Component, Path, PathBuf};

pub use super::known_weights::Size;

/// What a name begins with that stands for weights of torchvision.
const TORCHVISION: &str = "torchvision/";
/// What a name begins with that stands for a file of Hugging Face's hub.
const HUB: &str = "hf:";
/// A version of what is on the hub, if none is named.
const MAIN: &str = "main";

/// Weights that have a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pretrained {
    /// The name, as it is written.
    pub name: String,
    /// Who offers them.
    pub origin: Origin,
    /// The folder that they lie in, within that of its origin: `owner/model/resolve/main`; empty for torchvision.
    pub folder: String,
    /// The file's name.
    pub file: String,
    /// What is known of the model's weights.
    pub known: Option<&'static Known>,
}

/// Who offers weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// torchvision.
    Torchvision,
    /// Hugging Face's hub.
    Hub,
}

impl Origin {
    /// The variable that names another address, and the usual one.
    pub fn address(self) -> (&'static str, &'static str) {
        match self {
            Origin::Torchvision => ("RUNNER_TORCHVISION", "https://download.pytorch.org/models"),
            // The name that Hugging Face's own programs know.
            Origin::Hub => ("HF_ENDPOINT", "https://huggingface.co"),
        }
    }

    /// Its name, in messages.
    pub fn title(self) -> &'static str {
        match self {
            Origin::Torchvision => "torchvision",
            Origin::Hub => "Hugging Face",
        }
    }
}

impl Pretrained {
    /// What `text` names, if it is such a name.
    ///
    /// # Errors
    /// It looks like one, and names nothing: what is wrong, and what to do.
    pub fn parse(text: &str) -> Option<Result<Pretrained, Unknown>> {
        if let Some(name) = text.strip_prefix(TORCHVISION) {
            return Some(torchvision(text, name));
        }
        Some(hub(text, text.strip_prefix(HUB)?))
    }

    /// All that are listed.
    pub fn all() -> impl Iterator<Item = Pretrained> {
        let torchvision = TORCHVISION_FILES.iter().map(|known| format!("{TORCHVISION}{}@{}", known.model, known.tag));
        let names = torchvision.chain(HUB_MODELS.iter().map(|known| format!("{HUB}{}", known.model)));
        names.filter_map(|name| Pretrained::parse(&name)?.ok())
    }

    /// What is known of the file; nothing of other files of the model.
    fn of_file(&self) -> Option<&'static Known> {
        self.known.filter(|known| known.file == self.file)
    }

    /// The file's size, if it is known.
    pub fn size(&self) -> Option<Size> {
        self.of_file()?.size
    }

    /// The first digits of its SHA-256, or all of them, if they are known.
    pub fn sha256(&self) -> Option<&'static str> {
        self.of_file().map(|known| known.sha256).filter(|digits| !digits.is_empty())
    }

    /// What the user should know of their licence.
    pub fn licence(&self) -> String {
        match (self.known, self.origin) {
            (Some(known), Origin::Torchvision) => {
                let (licence, from) = (known.licence.spdx(), known.learnt_from);
                format!("{licence}; terms of the data that they were trained on ({from}) may hold, too")
            }
            (Some(known), Origin::Hub) => format!("{}, says the model's page", known.licence.spdx()),
            (None, _) => "the model's page has its licence".to_owned(),
        }
    }

    /// Where the file is kept; `None` where the environment names no place for caches.
    pub fn path(&self) -> Option<PathBuf> {
        Some(root()?.join(self.kept()))
    }

    /// The same, within the folder of all weights.
    fn kept(&self) -> PathBuf {
        match self.origin {
            Origin::Torchvision => Path::new("torchvision").join(&self.file),
            Origin::Hub => Path::new("hf").join(self.folder.replacen("/resolve/", "/", 1)).join(&self.file),
        }
    }

    /// The weights that are kept at `path`, if that is such a place.
    pub fn at(path: &Path) -> Option<Pretrained> {
        let within = path.strip_prefix(root()?).ok()?;
        let words: Vec<&str> = within.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let name = match &words[..] {
            ["torchvision", file] => {
                let Known { model, tag, .. } = TORCHVISION_FILES.iter().find(|known| known.file == *file)?;
                let usual = TORCHVISION_FILES.iter().find(|known| known.model == *model)?.tag;
                let tag = if *tag == usual { String::new() } else { format!("@{tag}") };
                format!("{TORCHVISION}{model}{tag}")
            }
            ["hf", owner, model, revision, file @ ..] if !file.is_empty() => {
                let revision = if *revision == MAIN { String::new() } else { format!("@{revision}") };
                let file = if file == [MODEL] { String::new() } else { format!("/{}", file.join("/")) };
                format!("{HUB}{owner}/{model}{revision}{file}")
            }
            _ => return None,
        };
        Pretrained::parse(&name)?.ok()
    }

    /// Another file of the same model on the hub.
    pub fn beside(&self, file: &str) -> Pretrained {
        Pretrained { file: file.to_owned(), ..self.clone() }
    }

    /// Other names for its tensors: those of DenseNet are older than its layers' names, and torchvision changes them as it reads them.
    pub fn renames(&self) -> Vec<Rename> {
        if self.origin != Origin::Torchvision || !self.file.starts_with("densenet") {
            return Vec::new();
        }
        let of = |layer: &str| Rename { from: format!("*.{layer}.*"), to: format!("*.{}.*", layer.replace('.', "")) };
        ["norm.1", "conv.1", "norm.2", "conv.2"].map(of).into()
    }

    /// The address of the folder that the file is in.
    pub fn address(&self) -> String {
        let (variable, usual) = self.origin.address();
        let set = std::env::var(variable).ok().filter(|set| !set.is_empty());
        let base = set.as_deref().unwrap_or(usual).trim_end_matches('/');
        match self.folder.as_str() {
            "" => base.to_owned(),
            folder => format!("{base}/{folder}"),
        }
    }
}

/// The folder of all weights that have names.
fn root() -> Option<PathBuf> {
    Some(caches::folder()?.join("weights"))
}

/// A name that names nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

fn torchvision(written: &str, name: &str) -> Result<Pretrained, Unknown> {
    let (model, tag) = name.split_once('@').map_or((name, None), |(model, tag)| (model, Some(tag)));
    let mut of_model = TORCHVISION_FILES.iter().filter(|known| known.model == model).peekable();
    if of_model.peek().is_none() {
        let help = match nearest(model, TORCHVISION_FILES.iter().map(|known| known.model)) {
            Some(near) => format!("did you mean `{TORCHVISION}{near}`?"),
            None => "`runner models --weights` lists all".to_owned(),
        };
        return Err(Unknown { what: format!("there are no weights `{written}`"), help });
    }
    let tags: Vec<&str> = of_model.clone().map(|known| known.tag).collect();
    let found = of_model.find(|known| tag.is_none_or(|tag| tag.eq_ignore_ascii_case(known.tag)));
    let Some(known) = found else {
        let what = format!("torchvision's `{model}` has no weights `{}`", tag.unwrap_or_default());
        return Err(Unknown { what, help: format!("it has {}", tags.join(", ")) });
    };
    Ok(Pretrained {
        name: written.to_owned(),
        origin: Origin::Torchvision,
        folder: String::new(),
        file: known.file.to_owned(),
        known: Some(known),
    })
}

fn hub(written: &str, name: &str) -> Result<Pretrained, Unknown> {
    let form = "a name of the hub is `hf:OWNER/MODEL`, and may go on with `@REVISION` and `/FILE`";
    let unknown = || Unknown { what: format!("`{written}` names no model of the hub"), help: form.to_owned() };
    let mut words = name.splitn(3, '/');
    let (owner, model) = words.next().zip(words.next()).ok_or_else(unknown)?;
    let file = words.next().unwrap_or(MODEL);
    let (model, revision) = model.split_once('@').unwrap_or((model, MAIN));
    let simple = |word: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !word.is_empty() && word.chars().all(fits) && !word.chars().all(|c| c == '.')
    };
    let is_inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    if ![owner, model, revision].into_iter().chain(file.split('/')).all(simple) || !is_inside {
        return Err(unknown());
    }
    let (folder, file) = match file.rsplit_once('/') {
        Some((inner, file)) => (format!("{owner}/{model}/resolve/{revision}/{inner}"), file),
        None => (format!("{owner}/{model}/resolve/{revision}"), file),
    };
    // A version that is named is what its author made of it.
    let is_known = |known: &&Known| folder == format!("{}/resolve/{MAIN}", known.model);
    let known = HUB_MODELS.iter().find(is_known);
    Ok(Pretrained { name: written.to_owned(), origin: Origin::Hub, folder, file: file.to_owned(), known })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Pretrained {
        Pretrained::parse(text).unwrap().unwrap()
    }

    fn refused(text: &str) -> Unknown {
        Pretrained::parse(text).unwrap().unwrap_err()
    }

    #[test]
    fn names_stand_for_files() {
        let found = read("torchvision/resnet50");
        assert_eq!((found.file.as_str(), found.sha256()), ("resnet50-11ad3fa6.pth", Some("11ad3fa6")));
        assert_eq!(read("torchvision/resnet50@imagenet1k_v1").file, "resnet50-0676ba61.pth");
        assert_eq!(read("torchvision/mnasnet1_0").sha256(), Some("f206786ef8"));
        let found = read("hf:timm/resnet18.a1_in1k");
        assert_eq!((found.folder.as_str(), found.file.as_str()), ("timm/resnet18.a1_in1k/resolve/main", MODEL));
        let found = read("hf:me/model@v1.0/unet/weights.safetensors");
        assert_eq!((found.folder.as_str(), found.file.as_str()), ("me/model/resolve/v1.0/unet", "weights.safetensors"));
        for path in ["resnet18.pth", "./torchvision/resnet18", "data/hf/model", "hf/model.safetensors"] {
            assert_eq!(Pretrained::parse(path), None, "{path}");
        }
    }

    #[test]
    fn old_names_of_densenet_become_those_of_its_layers() {
        let rules = read("torchvision/densenet121").renames();
        let renamed = |name: &str| rules.iter().find_map(|rule| rule.apply(name));
        for (old, new) in [
            ("features.denseblock1.denselayer2.norm.1.weight", "features.denseblock1.denselayer2.norm1.weight"),
            (
                "features.denseblock4.denselayer16.norm.2.running_var",
                "features.denseblock4.denselayer16.norm2.running_var",
            ),
            ("features.denseblock2.denselayer12.conv.2.weight", "features.denseblock2.denselayer12.conv2.weight"),
        ] {
            assert_eq!(renamed(old).as_deref(), Some(new));
        }
        for same in ["features.transition1.norm.weight", "features.conv0.weight", "classifier.bias"] {
            assert_eq!(renamed(same), None, "{same}");
        }
        assert!(read("torchvision/resnet18").renames().is_empty());
    }

    /// What is known is known of one file: not of others beside it, and not of other versions.
    #[test]
    fn what_is_known_is_of_one_file() {
        let gpt2 = read("hf:openai-community/gpt2");
        assert!(gpt2.size().is_some() && gpt2.sha256().is_some_and(|digits| digits.starts_with("248dfc39")));
        assert_eq!(gpt2.licence(), "MIT, says the model's page");
        let beside = gpt2.beside("config.json");
        assert_eq!((beside.size(), beside.sha256(), beside.licence()), (None, None, gpt2.licence()));
        for other in ["hf:openai-community/gpt2@v2", "hf:openai-community/gpt2/onnx/model.safetensors", "hf:me/gpt2"] {
            let other = read(other);
            assert_eq!((other.size(), other.sha256(), other.known), (None, None, None));
            assert!(other.licence().contains("page has its licence"));
        }
        let swag = read("torchvision/vit_b_16@IMAGENET1K_SWAG_LINEAR_V1");
        assert!(swag.licence().starts_with("CC-BY-NC-4.0;"), "{}", swag.licence());
    }

    #[test]
    fn names_of_nothing_are_refused() {
        assert_eq!(refused("torchvision/resnet19").help, "did you mean `torchvision/resnet18`?");
        assert_eq!(refused("torchvision/zzzz").help, "`runner models --weights` lists all");
        assert_eq!(refused("torchvision/resnet50@V3").help, "it has IMAGENET1K_V2, IMAGENET1K_V1");
        for name in
            ["hf:", "hf:gpt2", "hf:/gpt2", "hf:a/../b", "hf:a/b@../c", "hf:a/b/../../c", "hf:a/b//c", "hf:a/b c"]
        {
            assert!(refused(name).what.contains("names no model"), "{name}");
        }
    }

    #[test]
    fn every_place_has_its_name() {
        assert_eq!(Pretrained::all().count(), TORCHVISION_FILES.len() + HUB_MODELS.len());
        for found in Pretrained::all() {
            let known = found.known.unwrap();
            assert_eq!((found.file.as_str(), found.size()), (known.file, known.size));
            // Where a home is.
            if let Some(path) = found.path() {
                assert_eq!(Pretrained::at(&path).map(|named| named.file), Some(found.file));
            }
        }
        for name in
            ["torchvision/resnet50", "torchvision/resnet50@IMAGENET1K_V1", "hf:a/b", "hf:a/b@v2/c/d.safetensors"]
        {
            let found = read(name);
            if let Some(path) = found.path() {
                assert_eq!(Pretrained::at(&path), Some(found));
            }
        }
        assert_eq!(Pretrained::at(Path::new("/elsewhere/torchvision/resnet18-f37072fd.pth")), None);
    }
}
