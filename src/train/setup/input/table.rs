//! The options of a table, from the `[data]` section.

use super::{held_out, input_names, target_range, text};
use crate::config::declare::tagged::Tagged;
use crate::config::language::layers::Layer;
use crate::config::language::sections::{
    self as written, Cache, ColumnType, Csv, Decimal, Head, OnError, TableClasses,
};
use crate::config::load::paths::shown;
use crate::config::{Experiment, LayerKind, LayerNode};
use crate::data::DataSpec;
use crate::data::table::{
    Choice, DateForm, Division, Encoding, Fill, Fold, Format, HeadOptions, Lies, Norm, Room, Rule, Scaling, TableCodec,
    TableOptions, TokensOptions, WindowsOptions, Words,
};
use crate::graph::op::{TargetKind, Task};
use encoding_rs::Encoding as TextEncoding;

/// What the data layer reads.
pub fn options(csv: &Csv, experiment: &Experiment) -> TableOptions {
    let rules = csv.columns.iter().flat_map(|rules| &rules.0);
    let fitted = experiment.data.fitted.as_ref().and_then(|fitted| fitted.source.as_ref());
    let loss = experiment.loss.describe();
    TableOptions {
        path: shown(&csv.path),
        val_path: csv.val_path.as_deref().map(shown),
        format: Format {
            separator: csv.separator.as_ref().and_then(|text| text.bytes().next()),
            header: csv.header,
            quote: csv.quote_byte(),
            encoding: csv.encoding.as_ref().and_then(|name| TextEncoding::for_label_no_replacement(name.as_bytes())),
        },
        decimal: match csv.decimal {
            Decimal::Point => '.',
            Decimal::Comma => ',',
        },
        target: csv.target.names().to_vec(),
        classes: csv.classes != TableClasses::AsFound(false),
        class_names: csv.classes.names().map(<[String]>::to_vec),
        // The mean of a distribution is learnt as it is, and so is what yes or no are.
        standardize_target: csv.standardize_target
            && !loss.takes_positive_mean()
            && loss.task() != Task::BinaryClassification,
        range: target_range(experiment),
        heads: experiment.heads.iter().map(|head| of_head(head, csv)).collect(),
        bins: bins(&experiment.model.layers),
        takes: input_names(experiment),
        rules: rules.map(|rule| Rule { pattern: rule.name.clone(), choice: choice(&rule.column) }).collect(),
        drop: csv.drop.iter().flatten().cloned().collect(),
        id: csv.id.clone(),
        sample_weight: csv.sample_weight.clone(),
        skip: csv.on_error == OnError::Skip,
        division: Division {
            hold_out: experiment.data.loading.validation_split.as_ref().map(held_out),
            fold: csv.folds.map(|folds| Fold { number: csv.fold.unwrap_or(1) - 1, of: folds }),
            seed: experiment.data_seed(),
            split_column: csv.split_column.clone(),
            group_column: csv.group_column.clone(),
            time_column: csv.time_column.clone(),
            stratify_column: csv.stratify_column.clone(),
        },
        windows: csv.window.map(|rows| WindowsOptions {
            rows,
            horizon: csv.horizon.unwrap_or(1),
            stride: csv.stride.unwrap_or(1),
            series: csv.series_column.clone(),
        }),
        room: Room {
            lies: match experiment.data.loading.cache {
                Cache::None => Lies::WhereThereIsRoom,
                Cache::Memory => Lies::InMemory,
                Cache::Disk => Lies::Aside,
            },
            folder: experiment.data.loading.cache_dir.as_deref().map(shown),
        },
        fitted: fitted.and_then(|codec| TableCodec::read(codec)).map(Box::new),
    }
}

/// How the rows of tables become samples of a model that is trained, if it takes those; written as the configuration says.
pub fn codec(data: &DataSpec, experiment: &Experiment) -> Option<TableCodec> {
    let codec = TableCodec::of(data)?;
    let Some(csv) = experiment.data.source.table() else { return Some(codec) };
    let options = options(csv, experiment);
    let windows = codec.windows_by(&options);
    let TableOptions { decimal, id, sample_weight, format, .. } = options;
    Some(TableCodec { decimal, id, sample_weight, format, windows, ..codec })
}

/// How many bins the first layer that cuts numbers into some cuts them into.
fn bins(layers: &[LayerNode]) -> Option<usize> {
    let of = |node: &LayerNode| match &node.kind {
        LayerKind::Layer(Layer::PiecewiseLinearEmbedding(layer)) => Some(layer.bins),
        kind => kind.children().into_iter().find_map(bins),
    };
    layers.iter().find_map(of)
}

/// What a head learns. Questions of yes or no have numbers that are learnt as they are, as the mean of a distribution has.
fn of_head(head: &Head, csv: &Csv) -> HeadOptions {
    let loss = head.loss.0.describe();
    HeadOptions {
        name: head.name().to_owned(),
        column: head.target.clone(),
        loss: head.loss.0.type_name(),
        classes: loss.targets() == TargetKind::Classes,
        standardize: csv.standardize_target && loss.task() == Task::Regression && !loss.takes_positive_mean(),
        range: loss.target_range(),
    }
}

fn choice(column: &ColumnType) -> Choice {
    Choice::Encode(match column {
        ColumnType::Number(number) => Encoding::Number {
            scaling: match number.scaling {
                written::Scaling::Standardize => Scaling::Standardize,
                written::Scaling::Quantile => Scaling::Quantile,
                written::Scaling::Log => Scaling::Log,
                written::Scaling::PiecewiseLinear => Scaling::PiecewiseLinear,
                written::Scaling::None => Scaling::None,
            },
            fill: match number.missing {
                written::Fill::Median => Fill::Median,
                written::Fill::Mean => Fill::Mean,
                written::Fill::Zero => Fill::Zero,
            },
            bins: number.bins,
        },
        ColumnType::Category(category) => match category.hash_buckets {
            Some(buckets) => Encoding::Hashed { buckets },
            None => Encoding::Category { most: category.max_categories, least: category.min_count },
        },
        ColumnType::Text(text) => Encoding::Text(Words {
            buckets: text.hash_buckets,
            norm: match text.norm {
                written::Norm::L2 => Norm::L2,
                written::Norm::None => Norm::None,
            },
            alternate_sign: text.alternate_sign,
        }),
        ColumnType::Tokens(tokens) => {
            return Choice::Tokens(TokensOptions {
                tokenizer: text::choice(&tokens.tokenizer, tokens.vocab_size),
                lengths: tokens.lengths(),
            });
        }
        ColumnType::Boolean(_) => Encoding::Boolean,
        ColumnType::Date(date) => {
            Encoding::Date { form: date.format.as_deref().and_then(DateForm::new), time_of_day: date.time_of_day }
        }
        ColumnType::Ignore(ignored) => {
            return ignored.format.as_deref().and_then(DateForm::new).map_or(Choice::Ignore, Choice::Order);
        }
    })
}
