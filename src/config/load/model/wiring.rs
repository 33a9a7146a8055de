//! What connects layers by name: `from`, and the names of parameters.

use std::collections::{HashMap, HashSet};

use crate::config::declare::part::with_suggestion;
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::language::layers::{Layer, PositionKind};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::sink::Sink;
use crate::config::text::spelling::{list, shorten};

/// What the names of the tensors of an optimizer begin with in checkpoints, before a dot.
const OF_OPTIMIZER: &str = "optimizer";
/// The same of some other tensors of training, which have one name after the dot.
const OF_TRAINING: [&str; 3] = ["grad_scaler", "metrics", "carried"];
/// What most sources call what a model takes.
const INPUTS: &str = "inputs";

/// Replaces the names in `from` by the paths that they mean, and reports names that mean nothing, names of layers that
/// come later, and layers whose parameters would have the same names.
///
/// A name is looked for among the siblings, then among the siblings of the group around, and so on outwards; it may be
/// a path itself. At last it may be that of an input of the model, if the model names its inputs: then each of them must be
/// taken by a layer, and where there are several, the first layer must name those that it takes.
pub(super) fn connect(nodes: &mut [LayerNode], inputs: &[(String, Span)], sink: &Sink) {
    let mut wiring = Wiring {
        all: HashMap::new(),
        done: HashMap::new(),
        taken: HashSet::new(),
        parameters: HashMap::new(),
        around: HashMap::new(),
        sink,
    };
    wiring.collect(nodes);
    let named = wiring.inputs(inputs);
    let before = sink.len();
    wiring.walk(nodes, "", None);
    // A name that is misspelt is not a name that is missing.
    if named && sink.len() == before && !nodes.iter().any(LayerNode::is_doubtful) {
        wiring.check_inputs(nodes, inputs);
    }
}

/// The layer that is given what comes before `node`, if that or one inside takes it: one without `from`.
fn takes_what_comes_before(node: &LayerNode) -> Option<&LayerNode> {
    match &node.kind {
        _ if node.from.is_some() => None,
        LayerKind::Group(body) => body.first().and_then(takes_what_comes_before),
        LayerKind::Branches { branches, .. } => branches.iter().find_map(takes_what_comes_before),
        LayerKind::Layer(_) | LayerKind::Residual { .. } | LayerKind::Gate(_) => Some(node),
    }
}

struct Wiring<'a> {
    /// Every path, and the layer that has it.
    all: HashMap<String, Span>,
    /// The paths of layers whose output is there by now, and how many layers have each.
    done: HashMap<String, usize>,
    /// The paths that some layer takes.
    taken: HashSet<String>,
    /// What the names of parameters begin with, and the layer that has them.
    parameters: HashMap<String, (Span, Nameless)>,
    /// The names around layers that are a parameter themselves, and such a layer: `fc` of `fc.weight`.
    around: HashMap<String, (Span, Nameless)>,
    sink: &'a Sink,
}

/// The innermost `residual` or `branches` without a name around a layer, whose layers are named as if they stood beside it.
type Nameless = Option<(&'static str, Span)>;

impl Wiring<'_> {
    /// Makes the model's inputs known as if layers of these names had put them out; whether all is well with them.
    fn inputs(&mut self, inputs: &[(String, Span)]) -> bool {
        let before = self.sink.len();
        let mut places: HashMap<&str, Span> = HashMap::new();
        for (name, span) in inputs {
            if let Some(first) = places.insert(name, *span) {
                let message = format!("the input `{}` of the model is named twice", shorten(name));
                self.sink.push(Diagnostic::error(message).at(*span, "once more").context(first, "the first time"));
            } else if let Some(layer) = self.all.get(name) {
                let message = format!("`{}` is an input of the model, and a layer is called the same", shorten(name));
                self.sink.push(
                    Diagnostic::error(message)
                        .at(*layer, "this layer")
                        .context(*span, "the input")
                        .help("give the layer another `name`: `from` could mean either"),
                );
            }
            self.done.insert(name.clone(), 1);
        }
        self.sink.len() == before
    }

    fn check_inputs(&self, nodes: &[LayerNode], inputs: &[(String, Span)]) {
        let names: Vec<&str> = inputs.iter().map(|(name, _)| name.as_str()).collect();
        let first = nodes.first().and_then(takes_what_comes_before);
        if let (Some(layer), [name, _, ..]) = (first, &names[..]) {
            self.sink.push(
                Diagnostic::error("the first layer does not say which input of the model it takes")
                    .at(layer.span, format!("takes one of {}", list(names.iter().copied(), "and")))
                    .context(inputs[0].1, "the inputs")
                    .help(format!("for example `from = \"{}\"`", shorten(name))),
            );
            return;
        }
        for (name, span) in inputs.iter().filter(|(name, _)| first.is_none() && !self.taken.contains(name)) {
            self.sink.push(
                Diagnostic::error(format!("no layer takes the input `{}`", shorten(name)))
                    .at(*span, "is read for nothing")
                    .help("name it in the `from` of a layer, or leave it out"),
            );
        }
    }

    fn collect(&mut self, nodes: &[LayerNode]) {
        for node in nodes {
            if !node.name.is_empty() {
                self.all.insert(node.path.clone(), node.span);
            }
            for children in node.kind.children() {
                self.collect(children);
            }
        }
    }

    fn walk(&mut self, nodes: &mut [LayerNode], parent: &str, nameless: Nameless) {
        for node in nodes {
            self.visit(node, parent, nameless);
        }
    }

    fn visit(&mut self, node: &mut LayerNode, parent: &str, nameless: Nameless) {
        let mut right = true;
        for (name, span) in node.from.iter_mut().flatten() {
            match self.resolve(name, *span, parent) {
                Some(path) => {
                    self.taken.insert(path.clone());
                    *name = path;
                }
                None => right = false,
            }
        }
        let path = node.path.clone();
        let inside = |word: &'static str| if node.name.is_empty() { Some((word, node.span)) } else { None };
        match &mut node.kind {
            LayerKind::Layer(layer) => {
                let here = (node.span, nameless);
                right = self.is_free(&path, layer, node.span);
                for prefix in prefixes(layer) {
                    let name = format!("{path}{prefix}");
                    let other = self.parameters.insert(name.clone(), here).or(self.around.get(&name).copied());
                    if let Some(other) = other {
                        self.sink.push(clash(&name, here, other));
                        right = false;
                        break;
                    }
                }
                if is_parameter(layer)
                    && let Some((group, _)) = path.rsplit_once('.')
                {
                    self.around.insert(group.to_owned(), here);
                    if let Some(other) = self.parameters.get(group) {
                        self.sink.push(clash(group, here, *other));
                        right = false;
                    }
                }
            }
            LayerKind::Group(body) | LayerKind::Gate(body) => self.walk(body, &path, None),
            LayerKind::Residual { body, projection, .. } => {
                let nameless = inside("residual");
                self.walk(body, &path, nameless);
                if let Some(projection) = projection {
                    self.visit(projection, &path, nameless);
                }
            }
            LayerKind::Branches { branches, .. } => self.walk(branches, &path, inside("branches")),
        }
        if !right {
            // Nothing can be made of a layer without inputs, nor of one whose parameters are another's.
            (node.doubtful, node.from) = (true, None);
            if let LayerKind::Layer(_) = node.kind {
                node.kind = LayerKind::Group(Vec::new());
            }
        }
        if !node.name.is_empty() {
            *self.done.entry(path).or_default() += 1;
        }
    }

    /// Whether no tensor of a layer has a name that training has for its own; says so otherwise.
    fn is_free(&self, path: &str, layer: &Layer, span: Span) -> bool {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let (own, others) = (is_parameter(layer), prefixes(layer));
        // A layer that is a parameter itself adds nothing to its name.
        let taken = match first {
            OF_OPTIMIZER => !others.is_empty() && (!own || rest.is_some()),
            _ => own && rest.is_some() && OF_TRAINING.contains(&first),
        };
        if taken {
            let named = if own { shorten(path) } else { format!("{}.…", shorten(path)) };
            self.sink.push(
                Diagnostic::error(format!("parameters of a model cannot be called `{first}.…`"))
                    .at(span, format!("this layer has `{named}`"))
                    .help(format!("checkpoints keep these names for what training has beside the model: give the layer `{first}` another `name`")),
            );
        }
        !taken
    }

    /// The path that a name means, seen from inside of `parent`.
    fn resolve(&self, name: &str, span: Span, parent: &str) -> Option<String> {
        let mut scope = Some(parent);
        let mut later = None;
        while let Some(around) = scope {
            let path = if around.is_empty() { name.to_owned() } else { format!("{around}.{name}") };
            match self.done.get(&path) {
                Some(1) => return Some(path),
                Some(_) => {
                    self.sink.push(
                        Diagnostic::error(format!("`{}` could be more than one layer", shorten(name)))
                            .at(span, format!("several are called `{}`", shorten(&path))),
                    );
                    return None;
                }
                None => later = later.or(self.all.get(&path)),
            }
            scope = (!around.is_empty()).then(|| around.rfind('.').map_or("", |dot| &around[..dot]));
        }
        self.sink.push(match later {
            Some(&place) => Diagnostic::error(format!("`{}` has no output yet", shorten(name)))
                .at(span, "may only name an earlier layer")
                .context(place, "comes later, or is not complete"),
            None => {
                let mut known: Vec<&str> =
                    self.done.keys().map(|path| path.rsplit('.').next().unwrap_or(path)).collect();
                known.sort_unstable();
                known.dedup();
                let error = Diagnostic::error(format!("there is no layer `{}`", shorten(name)));
                let inside =
                    self.done.keys().filter(|path| path.rsplit_once('.').is_some_and(|(_, last)| last == name));
                match inside.min() {
                    Some(path) => error
                        .at(span, "neither beside it nor beside a group around it")
                        .help(format!("there is one inside of a group: `{}`", shorten(path))),
                    None if name == INPUTS => error
                        .at(span, "no earlier layer has this name")
                        .help("`inputs = [\"inputs\"]` in `[model]` lets layers name what a sample has: list all fields that the model takes"),
                    None => with_suggestion(error, span, "no earlier layer has this name", name, &known),
                }
            }
        });
        None
    }
}

/// Two layers whose parameters would have the same names; each with the nameless container that it stands in.
fn clash(name: &str, (span, nameless): (Span, Nameless), (other, others): (Span, Nameless)) -> Diagnostic {
    let mut error =
        Diagnostic::error(format!("the parameters of two layers would both be called `{}.…`", shorten(name)))
            .at(span, "this one's")
            .context(other, "and this one's");
    let around: Vec<(&str, Span)> = [nameless, others].into_iter().flatten().collect();
    let mut seen: Vec<Span> = Vec::new();
    for (_, container) in &around {
        if !seen.contains(container) {
            error = error.context(*container, "has no name");
            seen.push(*container);
        }
    }
    match around.first() {
        Some((word, _)) => error.help(format!(
            "a `{word}` without a name adds nothing to the names inside of it: its layers count from 0 beside those \
             around it; give it a `name`"
        )),
        None => error.help("give one of them another `name`"),
    }
}

/// Whether a layer has one parameter, which has the name of the layer.
fn is_parameter(layer: &Layer) -> bool {
    match layer {
        Layer::ClassToken(_) | Layer::LayerScale(_) => true,
        Layer::PositionEmbedding(l) => l.kind == PositionKind::Learned && l.max_length.is_none(),
        _ => false,
    }
}

/// What is saved under a layer's name: what follows the name in each group of parameters or buffers. Two layers may not
/// have the same.
fn prefixes(layer: &Layer) -> &'static [&'static str] {
    let has = match layer {
        Layer::Linear(l) => l.tied().is_none() || l.bias,
        Layer::PositionEmbedding(l) if l.kind == PositionKind::Learned && l.max_length.is_some() => true,
        Layer::Embedding(_) | Layer::TokenTypeEmbedding(_) | Layer::Conv2d(_) | Layer::Conv1d(_) | Layer::Prelu(_) => {
            true
        }
        Layer::ConvTranspose2d(_) | Layer::ConvTranspose1d(_) => true,
        Layer::Lstm(_) | Layer::Gru(_) | Layer::Rnn(_) | Layer::EmbeddingBag(_) => true,
        Layer::ClassToken(_) | Layer::PositionEmbedding(_) | Layer::LayerScale(_) => is_parameter(layer),
        Layer::BatchNorm1d(norm) => norm.affine || norm.track_running_stats,
        Layer::BatchNorm2d(norm) => norm.affine || norm.track_running_stats,
        Layer::GroupNorm(norm) => norm.affine,
        Layer::LayerNorm(norm) => norm.elementwise_affine,
        Layer::RmsNorm(norm) => norm.elementwise_affine,
        Layer::InstanceNorm2d(norm) => norm.affine,
        Layer::MultiheadAttention(_) => return &["", ".out_proj"],
        Layer::PiecewiseLinearEmbedding(_) => return &[".linear", ".linear0"],
        Layer::PeriodicEmbedding(_) => return &[".periodic", ".linear"],
        Layer::FeatureTokenizer(_) => return &[".cont_embeddings", ".cat_embeddings"],
        Layer::TabularInput(_) => return &[".embeddings"],
        Layer::EnsembleAffine(_) | Layer::EnsembleLinear(_) => true,
        Layer::ShiftedWindowAttention(_) => return &["", ".qkv", ".proj"],
        Layer::MaxPool2d(_)
        | Layer::DotInteraction(_)
        | Layer::AvgPool2d(_)
        | Layer::AdaptiveAvgPool2d(_)
        | Layer::AdaptiveMaxPool2d(_)
        | Layer::SequencePool(_)
        | Layer::ScaledDotProductAttention(_)
        | Layer::MaxPool1d(_)
        | Layer::AvgPool1d(_)
        | Layer::AdaptiveAvgPool1d(_)
        | Layer::Flatten(_)
        | Layer::Unflatten(_)
        | Layer::Reshape(_)
        | Layer::Permute(_)
        | Layer::Transpose(_)
        | Layer::Chunk(_)
        | Layer::Slice(_)
        | Layer::Select(_)
        | Layer::Mean(_)
        | Layer::Sum(_)
        | Layer::Roll(_)
        | Layer::MergePatches(_)
        | Layer::ChannelShuffle(_)
        | Layer::Upsample(_)
        | Layer::PixelShuffle(_)
        | Layer::PixelUnshuffle(_)
        | Layer::ZeroPad2d(_)
        | Layer::ReflectionPad2d(_)
        | Layer::ReplicationPad2d(_)
        | Layer::StochasticDepth(_)
        | Layer::Glu(_)
        | Layer::Swiglu(_)
        | Layer::Geglu(_)
        | Layer::Dropout(_)
        | Layer::Activation(_)
        | Layer::LocalResponseNorm(_)
        | Layer::Softmax(_)
        | Layer::LogSoftmax(_)
        | Layer::Add(_)
        | Layer::Multiply(_)
        | Layer::Concat(_)
        | Layer::EnsembleMean(_)
        | Layer::Identity(_) => false,
    };
    if has { &[""] } else { &[] }
}
