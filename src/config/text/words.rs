//! What people write who come from PyTorch and its relatives, and what it is called here.

use super::spelling::plain;

/// The key that takes away what a base has, in any section.
pub const UNSET: &str = "unset";

/// Modules before a name: `nn.Linear`, `torch.optim.Adam`.
const MODULES: &[&str] = &[
    "torch",
    "torchvision",
    "nn",
    "f",
    "functional",
    "optim",
    "lrscheduler",
    "transforms",
    "datasets",
    "keras",
    "layers",
    "tf",
];

/// Other words for ours, in small letters without `_` and `-`. Only a word that may stand in a place is offered there.
const SYNONYMS: &[(&str, &[&str])] = &[
    // Data.
    ("carry_state", &["stateful"]),
    ("hash_buckets", &["hashbucketsize", "nfeatures", "numbins"]),
    ("separator", &["sep", "delimiter"]),
    ("quote", &["quotechar", "quoting"]),
    ("encoding", &["charset", "fileencoding"]),
    ("stratify_column", &["stratify", "stratified", "stratifyby"]),
    ("format", &["dateformat", "strftime"]),
    ("ordinal", &["corn", "coral", "cornloss", "coralloss", "ordinalregression"]),
    // Layers.
    ("linear", &["dense", "fc", "fullyconnected", "mlp"]),
    ("conv2d", &["conv", "convolution", "convolution2d"]),
    (
        "conv_transpose2d",
        &["convtranspose", "deconv", "deconv2d", "transposedconv", "conv2dtranspose", "deconvolution"],
    ),
    (
        "upsample",
        &["interpolate", "resize", "upsampling", "upsampling2d", "upsamplingnearest2d", "upsamplingbilinear2d"],
    ),
    ("batch_norm1d", &["bn1d"]),
    ("batch_norm2d", &["bn2d"]),
    ("layer_norm", &["ln", "layernormalization"]),
    ("group_norm", &["gn", "groupnormalization"]),
    ("multihead_attention", &["attention", "selfattention", "mha", "multiheadselfattention"]),
    ("rnn", &["simplernn", "elman"]),
    ("max_pool2d", &["maxpool", "maxpooling", "maxpooling2d"]),
    ("avg_pool2d", &["avgpool", "averagepool", "averagepooling2d", "meanpool"]),
    ("adaptive_avg_pool2d", &["adaptiveavgpool", "globalavgpool", "globalaveragepooling2d", "globalavgpool2d", "gap"]),
    ("adaptive_max_pool2d", &["adaptivemaxpool", "globalmaxpool", "globalmaxpooling2d", "globalmaxpool2d"]),
    ("reshape", &["view"]),
    ("dropout", &["dropout1d", "dropout2d", "dropout3d"]),
    ("stochastic_depth", &["droppath", "dropconnect"]),
    ("class_token", &["clstoken", "cls"]),
    ("embedding_bag", &["embeddingbag"]),
    ("token_type_embedding", &["tokentypeembeddings", "segmentembedding"]),
    ("position_embedding", &["positionalembedding", "posembedding", "posembed", "positionalencoding"]),
    ("instance_norm2d", &["instancenorm", "instancenormalization"]),
    ("zero_pad2d", &["zeropadding2d", "pad2d", "constantpad2d"]),
    ("select", &["index"]),
    ("chunk", &["split"]),
    ("silu", &["swish"]),
    ("hardswish", &["hswish"]),
    ("hardsigmoid", &["hsigmoid"]),
    ("leaky_relu", &["lrelu"]),
    ("hardtanh", &["clamp", "clip"]),
    ("add", &["plus"]),
    ("multiply", &["mul", "product", "prod", "times"]),
    ("concat", &["cat", "concatenate"]),
    ("identity", &["noop", "passthrough"]),
    ("residual", &["skip", "residualblock", "resblock", "skipconnection"]),
    ("gate", &["se", "squeezeexcitation", "seblock"]),
    ("branches", &["parallel", "inception"]),
    // Their arguments.
    ("out_channels", &["filters", "channels", "outplanes", "numfilters", "numchannels", "dimout", "outfeatures"]),
    ("out_features", &["units", "neurons", "outputsize", "outputdim", "outdim", "outchannels", "size"]),
    ("kernel_size", &["kernel", "ksize", "filtersize", "poolsize", "windowsize"]),
    ("stride", &["strides"]),
    ("padding", &["pad"]),
    ("dilation", &["dilationrate"]),
    ("bias", &["usebias"]),
    ("p", &["rate", "prob", "probability", "dropoutrate", "dropout"]),
    ("eps", &["epsilon"]),
    ("num_heads", &["heads", "nhead", "nheads"]),
    ("nhead", &["heads", "numheads", "nheads"]),
    ("d_model", &["dmodel", "embeddim", "hiddensize", "width"]),
    ("dim_feedforward", &["dff", "feedforward", "ffndim", "intermediatesize"]),
    ("transformer_encoder_layer", &["transformerencoder", "encoderlayer", "encoder"]),
    ("transformer_decoder_layer", &["transformerdecoder", "decoderlayer", "decoder"]),
    ("num_kv_heads", &["nkvheads", "kvheads", "numkeyvalueheads", "numquerygroups"]),
    ("sliding_window", &["attentionwindow", "localwindow"]),
    ("is_causal", &["causal"]),
    ("num_groups", &["groups"]),
    ("output_size", &["size", "targetsize"]),
    ("negative_slope", &["slope"]),
    ("lambd", &["lambda"]),
    ("min_val", &["minvalue", "min", "low"]),
    ("max_val", &["maxvalue", "max", "high"]),
    // Sections.
    ("data", &["dataset", "datasets", "dataloader"]),
    ("model", &["network", "net", "architecture"]),
    ("loss", &["criterion", "objective", "lossfunction", "lossfn"]),
    ("optimizer", &["optim"]),
    ("schedule", &["scheduler", "lrscheduler", "lrschedule"]),
    ("train", &["training", "trainer", "fit"]),
    ("checkpoint", &["checkpointing", "saving"]),
    ("distributed", &["ddp", "dataparallel", "distributeddataparallel", "parallel"]),
    ("log", &["logging", "logger"]),
    ("params", &["parameters", "variables", "vars"]),
    ("extends", &["base", "inherits", "includes", "defaults", "parent"]),
    ("seed", &["randomseed", "manualseed", "randomstate"]),
    ("precision", &["dtype", "amp", "mixedprecision"]),
    ("device", &["gpu", "accelerator"]),
    ("devices", &["gpus", "gpuids", "deviceids"]),
    // Their keys.
    ("lr", &["learningrate", "eta"]),
    ("weight_decay", &["wd", "decay", "l2"]),
    ("betas", &["beta", "beta1", "beta2"]),
    ("epochs", &["epoch", "maxepochs", "numepochs", "nepochs", "tmax"]),
    ("steps", &["iterations", "maxiter", "maxiters", "numsteps", "numtrainsteps", "totalsteps"]),
    ("eval_every_steps", &["evalsteps", "evaliters", "valeverysteps"]),
    (
        "recompute",
        &[
            "gradientcheckpointing",
            "activationcheckpointing",
            "checkpointing",
            "gradcheckpointing",
            "checkpointactivations",
            "remat",
            "rematerialize",
        ],
    ),
    ("sync_batch_norm", &["syncbatchnorm", "syncbn", "synchronizedbatchnorm", "convertsyncbatchnorm"]),
    ("accumulate", &["gradientaccumulation", "gradientaccumulationsteps", "accumulategradbatches", "gradaccum"]),
    (
        "clip_grad_norm",
        &["gradclip", "clipgrad", "gradientclip", "gradientclipval", "maxgradnorm", "clipnorm", "maxnorm"],
    ),
    ("clip_grad_value", &["clipvalue", "gradclipvalue"]),
    ("clip_grad_adaptive", &["agc", "agcclip", "adaptivegradclip", "adaptiveclipgrad", "adaptivegradientclipping"]),
    ("batch_size", &["batch", "bs", "trainbatchsize"]),
    ("eval_batch_size", &["valbatchsize", "testbatchsize"]),
    ("workers", &["numworkers", "nworkers"]),
    ("prefetch", &["prefetchfactor"]),
    ("cache_size", &["memorybudget", "memorylimit", "maxmemory", "cachelimit"]),
    ("target", &["answer", "answercolumn", "answers", "response", "label", "labels"]),
    ("cache", &["cacheimages", "cachedata", "cachedataset"]),
    ("magnitude_std", &["mstd"]),
    ("validation_split", &["valsplit", "valfraction", "testsize", "valsize"]),
    ("train_transforms", &["augment", "augmentation", "augmentations"]),
    ("val_transforms", &["evaltransforms", "testtransforms", "valtransform"]),
    ("source", &["type", "name", "dataset"]),
    ("monitor", &["metric"]),
    ("schedules", &["schedulers"]),
    ("swa", &["stochasticweightaveraging", "averagedmodel", "weightaveraging"]),
    ("lr_base_size", &["lrbatchsize", "basebatchsize", "lrscaling"]),
    ("metrics", &["evaluation"]),
    ("type", &["name", "kind", "algorithm", "class"]),
    ("min_lr", &["etamin", "finallr"]),
    ("step_epochs", &["stepsize"]),
    ("every_steps", &["saveevery", "loginterval", "everynsteps", "everynstep", "interval"]),
    ("keep", &["savetopk", "keeplast", "maxtokeep"]),
    ("warmup_start_factor", &["startfactor", "warmupfactor"]),
    ("label_smoothing", &["smoothing"]),
    ("pos_weight", &["positiveweight", "posweights"]),
    ("weight", &["classweight", "classweights", "weights"]),
];

/// More of them, of values.
const VALUES: &[(&str, &[&str])] = &[
    ("cross_entropy", &["crossentropyloss", "ce", "softmaxcrossentropy", "categoricalcrossentropy"]),
    ("nll", &["nllloss", "negativeloglikelihood"]),
    ("quantile", &["pinball", "pinballloss", "quantileloss"]),
    ("poisson_nll", &["poisson", "poissonnll", "poissonnllloss"]),
    ("gamma_nll", &["gamma", "gammadeviance"]),
    ("tweedie", &["tweediedeviance", "tweedieloss"]),
    ("focal", &["focalloss"]),
    ("sigmoid_focal", &["sigmoidfocalloss", "binaryfocal", "binaryfocalloss"]),
    ("l1", &["l1loss", "mae", "maeloss", "meanabsoluteerror", "absoluteerror"]),
    ("smooth_l1", &["smoothl1loss"]),
    ("huber", &["huberloss"]),
    ("auroc", &["auc", "rocauc", "rocaucscore"]),
    ("calibration_error", &["ece", "expectedcalibrationerror"]),
    ("bce_with_logits", &["bcewithlogitsloss", "bcewithlogits", "sigmoidcrossentropy"]),
    ("mse", &["mseloss", "l2", "l2loss", "meansquarederror", "squarederror"]),
    ("sgd", &["momentum", "gradientdescent"]),
    ("step", &["steplr"]),
    ("multi_step", &["multisteplr"]),
    ("exponential", &["exponentiallr", "exponentialdecay"]),
    ("linear", &["linearlr", "lineardecay"]),
    ("polynomial", &["polynomiallr", "poly", "polynomialdecay"]),
    ("cosine", &["cosineannealinglr", "cosineannealing", "cosinedecay", "cosinelr"]),
    ("cosine_restarts", &["cosineannealingwarmrestarts", "cosinewarmrestarts", "sgdr", "warmrestarts"]),
    ("one_cycle", &["onecyclelr"]),
    ("plateau", &["reducelronplateau", "reduceonplateau"]),
    ("sequential", &["sequentiallr"]),
    ("constant", &["constantlr", "none"]),
    ("fp32", &["float32", "float", "single", "full", "32"]),
    ("fp16", &["float16", "half", "f16", "16"]),
    ("bf16", &["bfloat16"]),
    ("val_accuracy", &["accuracy", "acc", "valacc", "top1"]),
    ("val_loss", &["loss"]),
    ("val_top5_accuracy", &["top5", "valtop5"]),
    ("val_macro_f1", &["f1", "f1macro", "valf1", "macrof1"]),
    ("val_span_f1", &["entityf1", "seqeval", "seqevalf1", "spanf1"]),
    ("val_mean_iou", &["iou", "miou", "jaccard", "meaniou"]),
    ("top5_accuracy", &["top5"]),
    ("macro_f1", &["f1", "f1macro"]),
    ("weighted_f1", &["f1weighted"]),
    ("micro_f1", &["f1micro"]),
    ("balanced_accuracy", &["balancedacc"]),
    ("span_f1", &["entityf1", "seqeval", "seqevalf1"]),
    ("mean_iou", &["iou", "miou", "jaccard"]),
    ("val_mae", &["mae"]),
    ("val_rmse", &["rmse"]),
    ("random_horizontal_flip", &["flip", "hflip", "horizontalflip", "randomflip"]),
    ("random_vertical_flip", &["vflip", "verticalflip"]),
    ("random_rotation", &["rotation", "rotate", "randomrotate"]),
    ("random_erasing", &["erasing", "cutout", "randomerase"]),
    ("color_jitter", &["colourjitter", "jitter"]),
    ("gaussian_blur", &["blur"]),
    ("grayscale", &["greyscale"]),
    ("fashion_mnist", &["fashion", "fmnist"]),
    ("synthetic", &["random", "fake", "fakedata", "generated"]),
    ("tensors", &["tensor", "file", "safetensors", "tensordataset"]),
];

/// What has no counterpart; the nearest spelling would be something else.
const NOTHING_LIKE_IT: &[&str] = &[
    "conv3d",
    "convtranspose2d",
    "maxpool3d",
    "avgpool3d",
    "bilinear",
    "lbfgs",
    "rprop",
    "l1loss",
    "huberloss",
    "smoothl1loss",
    "kldivloss",
    "cycliclr",
    "imagenet",
    "svhn",
];

/// Words with more to be said of them: the place, the word, and what.
const REMARKS: &[(&str, &[&str], &str)] = &[
    (
        "a layer",
        &["batchnorm", "bn", "batchnormalization"],
        "did you mean `batch_norm2d` (of images) or `batch_norm1d` (of vectors and sequences)?",
    ),
    ("a layer", &["sequential", "seq", "group"], "a group is a table with `layers` and no `type`"),
    ("a layer", &["logsoftmax"], "leave it out: `cross_entropy` takes logits"),
    ("a layer", &["input", "inputlayer"], "leave it out: the shape of the input comes from the data"),
    ("a layer", &["block"], "the use of a block has `block = \"name\"` in place of `type`"),
    (
        "`[loss]`",
        &["bceloss", "bce", "binarycrossentropy"],
        "write `bce_with_logits`, which takes the model's output as it is before a sigmoid",
    ),
    ("`[loss]`", &["reduction", "sizeaverage"], "the loss is the mean over the samples, or over the tokens: delete it"),
    ("`[schedule]`", &["warmup"], "a rise at the start is `warmup_epochs` or `warmup_steps`, beside any type"),
    ("`[schedule]`", &["maxlr", "baselr"], "it is the `lr` of `[optimizer]`: delete it"),
    ("`[schedule]`", &["mode"], "known from the figure: delete it"),
    ("`[schedule]`", &["cyclemomentum", "basemomentum", "maxmomentum"], "the momentum stays as it is: delete it"),
    ("transforms", &["totensor", "toimage"], "leave it out: images are numbers from 0 to 1 already"),
    ("`[data]`", &["pinmemory", "persistentworkers", "multiprocessingcontext"], "there is no need for it: delete it"),
    ("`[optimizer]`", &["foreach", "fused", "capturable", "differentiable"], "there is no need for it: delete it"),
    (
        "`[train]`",
        &["validate", "valinterval", "checkvaleverynepoch", "evalinterval"],
        "did you mean `eval_every` or `eval_every_steps`?",
    ),
    (
        "`[train]`",
        &["patience", "mindelta"],
        "is a key of `early_stopping`: `early_stopping = { monitor = \"val_loss\", patience = 10 }`",
    ),
    (
        "layer `layer_norm`",
        &["normalizedshape"],
        "write `normalized_dims`, how many of the last dimensions; their sizes are inferred",
    ),
    ("layer `multihead_attention`", &["batchfirst"], "there is no need for it, the batch is always first: delete it"),
    ("layer `lstm`", &["batchfirst"], "there is no need for it, the batch is always first: delete it"),
    ("layer `gru`", &["batchfirst"], "there is no need for it, the batch is always first: delete it"),
    ("layer `rnn`", &["batchfirst"], "there is no need for it, the batch is always first: delete it"),
    ("layer `conv2d`", &["paddingmode"], "padding is always with zeros: delete it"),
    ("layer", &["inplace", "device", "dtype"], "there is no need for it: delete it"),
];

/// Sizes that PyTorch's layers take as arguments, and ours infer: the layer (or all), and its arguments.
const INFERRED: &[(&str, &[&str])] = &[
    ("", &["infeatures", "inchannels", "inplanes", "inputsize", "inputshape", "inputdim", "indim", "indims", "dimin"]),
    ("batch_norm1d", &["numfeatures", "numchannels"]),
    ("batch_norm2d", &["numfeatures", "numchannels"]),
    ("group_norm", &["numchannels", "numfeatures"]),
    ("layer_norm", &["numfeatures"]),
    ("shifted_window_attention", &["dim"]),
    ("multihead_attention", &["embeddim", "dmodel", "hiddensize", "kdim", "vdim"]),
];

/// The last name of `torch.nn.Linear`, in small letters without `_` and `-`; other dotted words whole.
fn bare(word: &str) -> String {
    match word.rsplit_once('.') {
        Some((modules, name)) if modules.split('.').all(|module| MODULES.contains(&&*plain(module))) => plain(name),
        _ => plain(word),
    }
}

/// The known word that was probably meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Quadratic in the length: a long word is no slip of the pen.
    if word.len() > 64 {
        return None;
    }
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(known) = translation(word, &known) {
        return Some(known);
    }
    if has_no_counterpart(word) {
        return None;
    }
    let score = |candidate: &str| {
        let close = strsim::jaro_winkler(&plain(word), &plain(candidate));
        let edits = strsim::damerau_levenshtein(&plain(word), &plain(candidate));
        (edits * 3 <= word.len().max(candidate.len()) || close > 0.88).then_some((edits, -close))
    };
    known
        .into_iter()
        .filter_map(|candidate| Some((score(candidate)?, candidate)))
        .min_by(|a, b| a.0.0.cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)))
        .map(|(_, candidate)| candidate)
}

/// What is known under another word.
fn translation<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = bare(word);
    known.iter().copied().find(|candidate| plain(candidate) == word).or_else(|| {
        let ours = SYNONYMS.iter().chain(VALUES).filter(|(_, others)| others.contains(&word.as_str()));
        ours.filter_map(|(ours, _)| known.iter().copied().find(|candidate| candidate == ours)).next()
    })
}

/// Whether the nearest spelling would be something else.
fn has_no_counterpart(word: &str) -> bool {
    NOTHING_LIKE_IT.contains(&bare(word).as_str())
}

/// What there is to be said of a word in a place, `` `[data]` `` or `` layer `conv2d` ``, besides what it is like.
pub fn remark(place: &str, word: &str) -> Option<String> {
    let bare = bare(word);
    if bare == UNSET {
        return Some("may only be `true`, in a file that `extends` another".into());
    }
    let kind = place.strip_prefix("layer `").and_then(|rest| rest.strip_suffix('`'));
    if let Some(kind) = kind
        && INFERRED.iter().any(|(of, all)| (of.is_empty() || *of == kind) && all.contains(&bare.as_str()))
    {
        return Some("inferred from what comes in: delete it".into());
    }
    let fits = |of: &str| {
        of == place || (of == "layer" && kind.is_some()) || (of == "transforms" && place.ends_with("transforms`"))
    };
    REMARKS.iter().find(|(of, all, _)| fits(of) && all.contains(&bare.as_str())).map(|(_, _, text)| (*text).to_owned())
}
