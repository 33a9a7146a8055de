//! What sections must agree on among themselves.

mod cache;
mod carried;
mod heads;
mod masks;
mod samples;
mod trainings;

use crate::config::declare::tagged::Tagged;
use crate::config::experiment::Experiment;
use crate::config::language::sections::{
    Course, Curve, Length, Loss, Method, Metric, Monitor, RANDOM_TRANSFORMS, Source, Transform,
};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::lints::Lint;
use crate::config::text::origins::Reporter;
use crate::config::text::sink::Sink;
use crate::graph::op::{Figure, Gathered, TargetKind};

/// Reports what does not fit together, but for what concerns what is `unread`, in whose place something else stands.
pub(super) fn check(experiment: &Experiment, unread: &[&'static str], sink: &Sink) {
    let reporter = Reporter { origins: &experiment.origins, sink, unread };
    let rules = Rules { experiment, reporter };
    rules.targets();
    rules.two_sequences();
    carried::check(experiment, &rules.reporter);
    rules.ignored_value_of_masks();
    rules.validation_is_set_once();
    rules.a_trial_is_one_training();
    rules.several_trainings_differ_in_one_thing();
    rules.heads();
    rules.monitors();
    rules.figures_of_outputs();
    rules.transforms();
    experiment.schedule.check(experiment.train.length(), &experiment.optimizer, &rules.reporter);
    rules.optimizer();
    rules.thaw();
    rules.swa();
    rules.shards();
    rules.schedule_free();
    rules.downloads();
    rules.samples_of_text();
    rules.bits_per_byte();
    cache::check(experiment, &rules.reporter);
    rules.sweep();
}

/// What sections must agree on. The rules of schedules are beside their keys.
struct Rules<'a> {
    experiment: &'a Experiment,
    reporter: Reporter<'a>,
}

impl Rules<'_> {
    /// Classes need a loss for classes, and numbers one for numbers.
    fn targets(&self) {
        let data = &self.experiment.data.source;
        let Some(classes) = data.has_classes() else { return };
        let loss = &self.experiment.loss;
        if loss.target().is_some() {
            // The targets are left alone.
            return;
        }
        let (fits, has, help) = match loss.describe().targets() {
            TargetKind::Classes => (classes, "targets are numbers", "the loss for numbers is `mse`"),
            TargetKind::Numbers => (!classes, "targets are classes", "the loss for classes is `cross_entropy`"),
        };
        if !fits {
            let error = Diagnostic::error(format!(
                "the loss `{}` does not fit the targets of `{}`",
                loss.type_name(),
                data.type_name()
            ));
            let synthetic = matches!(data, Source::Synthetic(_));
            let key = match (synthetic, classes) {
                (false, _) => "data.source",
                (true, true) => "data.classes",
                (true, false) => "data.targets",
            };
            self.reporter.at_keys(error.help(help), "loss.type", "cannot take these targets", key, has);
        }
    }

    /// Texts with answers are two sequences. Layers say which of them they take.
    fn two_sequences(&self) {
        let inputs = &self.experiment.model.inputs;
        let Source::TextToText(_) = &self.experiment.data.source else { return };
        let named = |name: &str| inputs.iter().any(|(known, _)| known == name);
        if !named("inputs") || !named("answers") {
            let message = "a model for texts with answers takes two fields, `inputs` and `answers`";
            let help = "write `inputs = [\"inputs\", \"answers\"]` in `[model]`, and `from` in the layers that take one of them";
            let error = Diagnostic::error(message).help(help);
            self.reporter.at_keys(error, "model.inputs", "does not name both", "data.source", "texts with answers");
        }
    }

    /// The figures that are watched, with the keys that say so.
    fn watched(&self) -> impl Iterator<Item = (&'static str, &Monitor)> {
        let stopping = self.experiment.train.early_stopping.as_ref().map(|stopping| &stopping.monitor);
        let all = [
            ("train.early_stopping.monitor", stopping),
            ("schedule.monitor", self.experiment.schedule.monitor()),
            ("checkpoint.monitor", self.experiment.checkpoint.monitor.as_ref()),
            ("sweep.monitor", self.experiment.sweep.as_ref().and_then(|sweep| sweep.monitor.as_ref())),
        ];
        all.into_iter().filter_map(|(key, metric)| Some((key, metric?)))
    }

    /// A figure that is watched must be one that this loss comes with, or that of a head.
    fn monitors(&self) {
        let task = self.experiment.loss.describe().task();
        let figures = [task.figures(), task.asked_figures()].concat();
        let own = Metric::ALL.iter().filter(|m| m.of_validation() && figures.contains(&m.figure()));
        let of_heads = self.figures_of_heads();
        let there = own.map(|m| m.name()).chain(of_heads.iter().map(String::as_str));
        let there: Vec<&str> = there.chain([Metric::TrainLoss.name()]).collect();
        for (key, monitor) in self.watched() {
            match monitor {
                Monitor::Model(metric) if figures.contains(&metric.figure()) => {}
                Monitor::Model(metric) => self.not_measured(metric.name(), there.iter().copied(), key),
                Monitor::Head(of) => self.watches_a_head(monitor.name(), of, &there, key),
            }
        }
        let there = self.experiment.loss.describe().task().asked_figures();
        for (i, figure) in self.experiment.metrics.figures.iter().map(|f| f.figure()).enumerate() {
            if figure == Figure::Coverage && there.contains(&figure) && self.experiment.loss.quantiles().is_empty() {
                let error =
                    Diagnostic::error("there is no `coverage` of a model that puts out one number for each target");
                let error = error.help(
                    "write several quantiles: `[loss]` with `type = \"quantile\"` and `quantile = [0.05, 0.5, 0.95]`",
                );
                self.reporter.at_keys(
                    error,
                    &format!("metrics.figures.{i}"),
                    "never computed",
                    "loss.type",
                    "the loss",
                );
            }
            if !there.contains(&figure) {
                self.not_measured(figure.name(), there.iter().map(|f| f.name()), &format!("metrics.figures.{i}"));
            }
        }
    }

    /// Figures of outputs compare them with targets of the data, which a loss of inputs leaves alone.
    fn figures_of_outputs(&self) {
        let Some(target) = self.experiment.loss.target() else { return };
        let asked = self.experiment.metrics.figures.iter().enumerate();
        let asked = asked.map(|(i, figure)| (format!("metrics.figures.{i}"), figure.figure()));
        let watched = self.watched().filter_map(|(key, monitor)| Some((key.to_owned(), monitor.of_model()?.figure())));
        for (key, figure) in asked.chain(watched).filter(|(_, figure)| figure.gathered() == Gathered::Outputs) {
            let error = Diagnostic::error(format!("there is no `{}` of a model that learns `{target}`", figure.name()));
            let error = error.help("leave it out: it compares outputs with targets of the data");
            self.reporter.at_keys(error, &key, "never computed", "loss.target", "what is learnt");
        }
    }

    /// Reports that there is no such figure with the loss, but others.
    fn not_measured<'n>(&self, name: &str, others: impl Iterator<Item = &'n str>, key: &str) {
        let others: Vec<String> = others.map(|name| format!("`{name}`")).collect();
        let instead = match others.split_last() {
            Some((last, before)) if !before.is_empty() => format!("there are {} and {last}", before.join(", ")),
            Some((only, _)) => format!("there is {only}"),
            None => "there is nothing to add".into(),
        };
        let error =
            Diagnostic::error(format!("there is no `{name}` with the loss `{}`", self.experiment.loss.type_name()))
                .help(format!("with this loss {instead}"));
        self.reporter.at_keys(error, key, "never computed", "loss.type", "the loss");
    }

    fn transforms(&self) {
        let random = |t: &Transform| RANDOM_TRANSFORMS.contains(&t.type_name());
        let data = &self.experiment.data;
        let lists = [
            (&data.transforms, "transforms", "would change evaluation too"),
            (&data.val_transforms, "val_transforms", "would make evaluation random"),
        ];
        for (transforms, list, why) in lists {
            for (i, transform) in transforms.iter().enumerate().filter(|(_, t)| random(t)) {
                let error = Diagnostic::error(format!("`{}` in `{list}` {why}", transform.type_name()));
                self.reporter.at_key(error, &format!("data.{list}.{i}"), "put it into `train_transforms`");
            }
        }
        let normalize = |t: &Transform| matches!(t, Transform::Normalize(_));
        let lists = [
            (&data.train_transforms, "train_transforms", "evaluation"),
            (&data.val_transforms, "val_transforms", "training"),
        ];
        for (transforms, list, other) in lists {
            for (i, transform) in transforms.iter().enumerate().filter(|(_, t)| normalize(t)) {
                let name = transform.type_name();
                let error = Diagnostic::error(format!("`{name}` in `{list}` would leave {other} as it is"));
                self.reporter.at_key(
                    error,
                    &format!("data.{list}.{i}"),
                    "put it into `transforms`, which are for both",
                );
            }
        }
        self.mixing();
        let after = data.transforms.iter().enumerate().skip_while(|(_, t)| !normalize(t));
        for (i, transform) in after.filter(|(_, t)| !normalize(t) && !random(t)) {
            let error = Diagnostic::error(format!("`{}` must come before `normalize`", transform.type_name()));
            self.reporter.at_key(error, &format!("data.transforms.{i}"), "changes pixels, which are normalised last");
        }
        for (i, _) in data.transforms.iter().enumerate().filter(|(_, t)| normalize(t)).skip(1) {
            let error = Diagnostic::error("`transforms` normalise twice");
            self.reporter.at_key(error, &format!("data.transforms.{i}"), "one `normalize` is enough");
        }
    }

    /// What mixes the samples of a batch comes last, once, and with a loss that takes parts of a class.
    fn mixing(&self) {
        let mixes = |t: &Transform| matches!(t, Transform::Mixup(_) | Transform::Cutmix(_));
        let list = &self.experiment.data.train_transforms;
        let key = |i: usize| format!("data.train_transforms.{i}");
        let Some(first) = list.iter().position(mixes) else { return };
        for (i, transform) in list.iter().enumerate().skip(first + 1) {
            let name = transform.type_name();
            if !mixes(transform) {
                let error = Diagnostic::error(format!("`{name}` must come before `{}`", list[first].type_name()));
                self.reporter.at_keys(error, &key(i), "changes one image", &key(first), "mixes finished ones");
            } else if let Some(other) = list[..i].iter().position(|t| t.type_name() == name) {
                let error = Diagnostic::error(format!("`train_transforms` have `{name}` twice"));
                self.reporter.at_keys(error, &key(i), "one is enough", &key(other), "the first");
            }
        }
        for i in list.iter().enumerate().filter(|(_, t)| matches!(t, Transform::Cutmix(_))).map(|(i, _)| i) {
            let key = format!("{}.switch_prob", key(i));
            let alone = !list.iter().any(|t| matches!(t, Transform::Mixup(_)));
            if alone && self.experiment.span_of(&key).is_some() {
                let warning = Diagnostic::warning(Lint::NoEffect, "`switch_prob` of `cutmix` has no effect");
                self.reporter.at_key(warning, &key, "there is no `mixup` to switch from");
            }
        }
        let loss = &self.experiment.loss;
        if !matches!(loss, Loss::CrossEntropy(_) | Loss::BceWithLogits(_)) {
            let error = Diagnostic::error(format!(
                "`{}` does not go with the loss `{}`",
                list[first].type_name(),
                loss.type_name()
            ))
            .help("samples are mixed for `cross_entropy` or `bce_with_logits`");
            self.reporter.at_keys(error, &key(first), "makes targets of parts of classes", "loss.type", "the loss");
        }
    }

    /// Values with which a run is sure to fail, or not to learn.
    fn optimizer(&self) {
        let optimizer = &self.experiment.optimizer;
        let warning = |message: String| Diagnostic::warning(Lint::DivergingOptimizer, message);
        let [momentum, dampening] = optimizer.rule.momentum();
        if momentum >= 1.0 {
            let warning = warning(format!("a `momentum` of {momentum} lets updates grow without bound"));
            self.reporter.at_key(
                warning.help("take 0.9, or another value below 1"),
                "optimizer.momentum",
                "not below 1",
            );
        }
        if momentum > 0.0 && dampening >= 1.0 {
            let warning = warning("with a `dampening` of 1 only the first gradient counts".into());
            self.reporter.at_key(
                warning.help("leave it out, or take a value below 1"),
                "optimizer.dampening",
                "takes all of a gradient away",
            );
        }
        // The condition under which Adam was shown to converge, β₁² < √β₂ (Kingma & Ba 2015, section 4).
        if let Some(betas) = optimizer.rule.betas()
            && betas[0] > betas[1]
            && betas[0] * betas[0] >= betas[1].sqrt()
        {
            let warning = warning(format!("`betas` of {} and {} are in the wrong order", betas[0], betas[1]));
            let help = "the first is for the gradient, the second, slower one for its square: [0.9, 0.999]";
            self.reporter.at_key(warning.help(help), "optimizer.betas", "the first is above the second");
        }
        let (rate, [usual, most]) = (optimizer.rule.lr(), optimizer.rule.usual_rates());
        if rate > most {
            let word = optimizer.rule.type_name();
            let message = format!("a learning rate of {} is far beyond what `{word}` bears", short(rate));
            let help = format!("begin with {usual}; `runner lr-find` measures what the model bears");
            let warning = Diagnostic::warning(Lint::LargeLearningRate, message).help(help);
            self.reporter.at_key(warning, "optimizer.lr", &format!("above {most}"));
        }
        if !optimizer.rule.decays_by_share() {
            return;
        }
        let groups = optimizer.groups.iter().enumerate();
        let own = groups.filter(|(_, group)| group.lr.is_some() || group.weight_decay.is_some()).map(|(i, group)| {
            let lr = group.lr.unwrap_or(optimizer.rule.lr());
            (
                format!("optimizer.groups.{i}.weight_decay"),
                lr,
                group.weight_decay.unwrap_or(optimizer.rule.weight_decay()),
            )
        });
        let section = ("optimizer.weight_decay".to_owned(), optimizer.rule.lr(), optimizer.rule.weight_decay());
        for (key, lr, decay) in [section].into_iter().chain(own).filter(|(_, lr, decay)| lr * decay >= 1.0) {
            let warning = warning(format!(
                "`weight_decay` leaves nothing of a parameter: a step takes {} · {} of it away",
                short(lr),
                short(decay)
            ));
            self.reporter.at_key(
                warning.help("the learning rate times `weight_decay` must be well below 1"),
                &key,
                "too large for this learning rate",
            );
        }
    }

    /// There must be epochs to average over, and one place that the learning rate comes from.
    fn swa(&self) {
        let Some(swa) = &self.experiment.optimizer.swa else { return };
        let length = self.experiment.train.length();
        match length {
            Length::Epochs(epochs) if swa.start as u64 >= epochs => {
                let error = Diagnostic::error(format!("`swa` starts after the run, which has {length}"))
                    .help("`start` is the number of epochs before: take less, or leave `swa` out");
                let ends = "the run ends with these";
                self.reporter.at_keys(error, "optimizer.swa.start", "nothing is averaged", "train.epochs", ends);
            }
            Length::Steps(_) => {
                let error = Diagnostic::error("`swa` averages at the ends of epochs, and the run may end within one")
                    .help("tell the length of the run as `train.epochs`");
                self.reporter.at_keys(error, "optimizer.swa", "goes by epochs", "train.steps", "goes by steps");
            }
            Length::Epochs(_) => {}
        }
        if let (Some(_), Curve::Plateau(_)) = (swa.lr, &self.experiment.schedule.curve) {
            let error = Diagnostic::error("`swa` has a learning rate, and `plateau` in `[schedule]` sets it, too")
                .help("take another schedule, or `swa` without `lr`");
            self.reporter.at_keys(error, "optimizer.swa.lr", "from `start` on", "schedule.type", "at any time");
        }
    }

    /// Shards are of one size.
    fn shards(&self) {
        let synced = ("distributed.sync_batch_norm", self.experiment.distributed.sync_batch_norm);
        let Some(shards) = self.experiment.distributed.shards else {
            if let (key, true) = synced {
                let error = Diagnostic::error("`sync_batch_norm` joins the statistics of shards, and there are none")
                    .help("tell `shards`, or leave it out: without shards the statistics are those of the whole batch");
                self.reporter.at_key(error, key, "of no shards");
            }
            return;
        };
        if let ((key, true), 2..) = (synced, self.experiment.train.accumulate) {
            let error = Diagnostic::error("`sync_batch_norm` does not go with `accumulate`")
                .help("take a `batch_size` of all that an update has, cut into more `shards`");
            self.reporter.at_keys(error, key, "of all shards of a step", "train.accumulate", "a step in several parts");
        }
        // Without a number of them each GPU has a shard.
        let of_devices = self.experiment.span_of("distributed.shards").is_none();
        let key = [if of_devices { "devices" } else { "distributed.shards" }, "data.batch_size"];
        if self.experiment.data.auto_batch_size {
            let error = Diagnostic::error("`batch_size = \"auto\"` does not go with `shards`")
                .help("tell how many samples a batch has: the result depends on it");
            self.reporter.at_keys(error, key[1], "not known before", key[0], "cut into these");
            return;
        }
        let batch = self.experiment.data.loading.batch_size;
        if batch.is_multiple_of(shards) {
            return;
        }
        let (less, more) = (batch / shards * shards, batch.next_multiple_of(shards));
        let sizes = if less > 0 { format!("{less} or {more}") } else { more.to_string() };
        let divisor = (1..shards).rev().find(|n| batch.is_multiple_of(*n)).unwrap_or(1);
        let (instead, label) = match of_devices {
            true if divisor == 1 => ("one GPU".to_string(), "a shard for each"),
            true => (format!("{divisor} GPUs"), "a shard for each"),
            false => (format!("`shards = {divisor}`"), "shards"),
        };
        let error = Diagnostic::error(format!("a batch of {batch} samples cannot be cut into {shards} equal shards"))
            .help(format!("take a `batch_size` of {sizes}, or {instead}"));
        self.reporter.at_keys(error, key[0], label, key[1], "samples");
    }

    /// What has an average of its own takes no other one, and no schedule.
    fn schedule_free(&self) {
        let optimizer = &self.experiment.optimizer;
        if !optimizer.rule.is_schedule_free() {
            return;
        }
        let name = optimizer.rule.type_name();
        for (key, _) in
            [("ema", optimizer.ema.is_some()), ("swa", optimizer.swa.is_some())].iter().filter(|(_, is)| *is)
        {
            let error = Diagnostic::error(format!("`{name}` and `{key}` both average the weights"))
                .help(format!("leave `{key}` out: what is evaluated is the average of `{name}`"));
            let own = "has an average of its own";
            self.reporter.at_keys(error, &format!("optimizer.{key}"), "a second average", "optimizer.type", own);
        }
        let schedule = &self.experiment.schedule;
        let rises = [
            ("schedule.warmup_epochs", schedule.warmup.warmup_epochs.is_some()),
            ("schedule.warmup_steps", schedule.warmup.warmup_steps.is_some()),
        ];
        if !matches!(schedule.curve, Curve::Course(Course::Constant(_))) {
            let error = Diagnostic::error(format!("`{name}` takes no schedule, but `{}`", schedule.curve.type_name()))
                .help("leave `[schedule]` out: its average does what a falling learning rate is for");
            self.reporter.at_keys(error, "schedule.type", "changes the rate", "optimizer.type", "wants it constant");
        } else if let Some((key, _)) = rises.iter().find(|(_, is)| *is) {
            let error = Diagnostic::error(format!("`{name}` has a warm-up of its own"))
                .help("take `warmup_steps` in `[optimizer]`, by which its average goes");
            self.reporter.at_keys(error, key, "a second one", "optimizer.type", "knows nothing of this");
        }
    }

    /// What is thawed must have been frozen, and be trained before the run ends.
    fn thaw(&self) {
        let (model, length) = (&self.experiment.model, self.experiment.train.length());
        let Some(after) = model.thaw_after else { return };
        if model.freeze.is_empty() {
            let error = Diagnostic::error("`thaw_after` thaws nothing: no parameter is frozen")
                .help("`freeze` names what is not trained at first");
            self.reporter.at_key(error, "model.thaw_after", "there is no `freeze`");
        } else if length.in_epochs().is_some_and(|epochs| after as u64 >= epochs) {
            let error = Diagnostic::error(format!("`thaw_after` comes after the run, which has {length}"))
                .help("leave it out, or take fewer epochs");
            self.reporter.at_keys(
                error,
                "model.thaw_after",
                "nothing is trained after this",
                "train.epochs",
                "the run ends with these",
            );
        }
    }

    fn downloads(&self) {
        let Some(files) = self.experiment.data.source.download() else { return };
        if !files.download && files.mirrors.is_some() {
            let warning = Diagnostic::warning(Lint::NoEffect, "`mirrors` in `[data]` has no effect");
            self.reporter.at_keys(warning, "data.mirrors", "nothing is fetched", "data.download", "because of this");
        }
    }

    /// Rounds of a sweep lie within the run. They are of whole epochs.
    fn sweep(&self) {
        let Some(sweep) = &self.experiment.sweep else { return };
        let (halving, stop) = (sweep.method == Method::Halving, sweep.stop.is_some());
        for (key, used, why) in [
            ("reduction", halving, "only for `halving`"),
            ("min_epochs", halving || stop, "only for `halving` and `stop`"),
            ("stop_after", stop, "only for `stop`"),
        ] {
            if !used && self.experiment.span_of(&format!("sweep.{key}")).is_some() {
                let warning = Diagnostic::warning(Lint::NoEffect, format!("`{key}` in `[sweep]` has no effect"));
                self.reporter.at_key(warning, &format!("sweep.{key}"), why);
            }
        }
        let length = self.experiment.train.length();
        if let (Length::Steps(_), Some((key, what))) = (length, sweep.goes_by_epochs()) {
            let error = Diagnostic::error(format!(
                "{what} compares trials after whole epochs, and the length of this run is given in steps"
            ))
            .help("give the run a length in `epochs`, or take the sweep without that");
            self.reporter.at_keys(error, key, "goes by epochs", length.key(), "steps");
            return;
        }
        let whole = length.in_epochs().is_some_and(|epochs| sweep.min_epochs as u64 >= epochs);
        if sweep.method == Method::Halving && whole && sweep.count() > 1 {
            let error = Diagnostic::error("`halving` has nothing to halve: its first round is the whole run")
                .help("take a smaller `min_epochs`, or more epochs");
            self.reporter.at_keys(error, "sweep.min_epochs", "all epochs", "train.epochs", "these");
        }
    }
}

/// A number in as few digits as it has.
fn short(number: f64) -> String {
    if number < 1e6 { number.to_string() } else { format!("{number:e}") }
}
