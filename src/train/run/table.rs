//! The table of epochs and evaluations: as wide as the terminal at most, whatever the figures are.

use crate::graph::op::{Figure, Task};
use crate::terminal::{columns, figure, percent};
use crate::train::setup::figures::Figures;
use crate::train::setup::programs::HeadOf;

/// The figures of an epoch, or of an evaluation within one.
#[derive(Debug, Clone)]
pub struct Row {
    /// Number of the epoch, from 1, or of the step.
    pub at: u64,
    /// On the training batches.
    pub train: Option<Figures>,
    /// On the validation samples.
    pub val: Option<Figures>,
    /// Duration of the training part.
    pub seconds: f64,
    /// Training samples per second.
    pub samples_per_s: f64,
    /// The monitored figure is the best so far.
    pub best: bool,
}

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Place,
    Train(Figure),
    Val(Figure),
    /// Of the head of that number, on the samples of training or of validation.
    Head(usize, Figure, bool),
    Seconds,
    Rate,
}

/// Which columns there are, and how wide.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(Content, usize)>,
    gap: usize,
    /// What places are counted in, and how many there are.
    counted: (&'static str, u64),
    /// The names of heads.
    heads: Vec<String>,
}

/// What stands after the row of the best epoch.
const BEST: &str = "best";

impl Table {
    /// The table of a run that is `counted` in so many epochs or steps, with those figures of the validation, in `width` columns of
    /// a terminal: with figures as long as fit, and in very narrow terminals without what can be done without. Of each of the heads it has
    /// one figure, where there is room for all.
    pub fn new(
        task: Task,
        validation: &[Figure],
        heads: &[HeadOf],
        counted: (&'static str, u64),
        width: usize,
    ) -> Self {
        let names: Vec<String> = heads.iter().map(|head| head.name.clone()).collect();
        let of_heads = |val: bool| {
            // The first is the loss. Of a run that validates it is that of the validation.
            let figure = |(at, head): (usize, &HeadOf)| Some(Content::Head(at, *head.task().figures().get(1)?, val));
            let there = val != validation.is_empty();
            heads.iter().enumerate().filter_map(figure).filter(move |_| there).collect::<Vec<_>>()
        };
        let place = (2 * counted.1.to_string().len() + 1).max(counted.0.len());
        // Bits a byte are the loss in another unit: they have a column where no other goes for them.
        let not_bytes: Vec<Figure> = validation.iter().copied().filter(|f| *f != Figure::BitsPerByte).collect();
        let of = |validation: &[Figure], with_heads: bool, extra: bool, times: usize, most: usize| {
            let train = task.figures().iter().filter(|f| extra || **f == Figure::Loss).map(|f| Content::Train(*f));
            let val = validation.iter().take(most).map(|f| Content::Val(*f));
            let times = [Content::Seconds, Content::Rate].into_iter().take(times);
            let [of_train, of_val] = [false, true].map(|val| if with_heads { of_heads(val) } else { Vec::new() });
            let figures = train.chain(of_train).chain(val).chain(of_val);
            [Content::Place].into_iter().chain(figures).chain(times).collect::<Vec<_>>()
        };
        let all = |with_heads, extra, times, most| of(&not_bytes, with_heads, extra, times, most);
        let wholes =
            |contents: Vec<Content>| [(9, 2), (8, 2), (8, 1), (7, 1)].map(|(cell, gap)| (contents.clone(), cell, gap));
        let with_bytes = match not_bytes.len() == validation.len() {
            true => Vec::new(),
            false => wholes(of(validation, false, true, 2, usize::MAX)).to_vec(),
        };
        let layouts = |with_heads: bool| {
            let layouts = wholes(all(with_heads, true, 2, usize::MAX));
            let less = [1, 0].map(|times| (all(with_heads, true, times, usize::MAX), 7, 1));
            [layouts.to_vec(), less.to_vec()].concat()
        };
        let with_heads = if heads.is_empty() { Vec::new() } else { layouts(true) };
        let least = (all(false, false, 0, usize::MAX), 7, 1);
        // Of many figures the last are left to `metrics.jsonl`.
        let fewer = (task.figures().len()..not_bytes.len()).rev().map(|most| (all(false, false, 0, most), 7, 1));
        let layouts = with_bytes.into_iter().chain(with_heads).chain(layouts(false)).chain([least]).chain(fewer);
        let mut tables = layouts.map(|(contents, cell, gap)| {
            let wide = |content: Content| match content {
                Content::Place => place,
                Content::Train(_) | Content::Val(_) => cell,
                Content::Head(at, figure, _) => cell.max(columns(&of_head(&names[at], figure, cell))),
                Content::Seconds => 7,
                Content::Rate => "samples/s".len(),
            };
            Table {
                columns: contents.into_iter().map(|content| (content, wide(content))).collect(),
                gap,
                counted,
                heads: names.clone(),
            }
        });
        let last = tables.next_back();
        tables.find(|table| table.width() <= width).or(last).unwrap_or(Table {
            columns: Vec::new(),
            gap: 1,
            counted,
            heads: Vec::new(),
        })
    }

    /// Characters of the longest row.
    fn width(&self) -> usize {
        self.columns.iter().map(|(_, width)| width + self.gap).sum::<usize>() + BEST.len()
    }

    /// The lines above the rows: whose figures, and which.
    pub fn header(&self) -> [String; 2] {
        let groups =
            [("", Content::is_place as fn(&Content) -> bool), ("train", Content::is_train), ("val", Content::is_val)];
        let groups = groups.into_iter().filter_map(|(name, is_in)| {
            let widths: Vec<usize> = self.columns.iter().filter(|(c, _)| is_in(c)).map(|(_, width)| *width).collect();
            let span = widths.iter().sum::<usize>() + self.gap * widths.len().checked_sub(1)?;
            Some(if name.is_empty() { " ".repeat(span) } else { format!("{:-^span$}", format!(" {name} ")) })
        });
        let groups = groups.collect::<Vec<_>>().join(&" ".repeat(self.gap));
        let names = self.columns.iter().map(|(content, width)| match content {
            Content::Place => self.counted.0.to_owned(),
            Content::Train(f) | Content::Val(f) if *width < f.name().len() => f.short_name().to_owned(),
            Content::Train(f) | Content::Val(f) => f.name().to_owned(),
            Content::Head(at, f, _) => of_head(&self.heads[*at], *f, *width),
            Content::Seconds => "seconds".to_owned(),
            Content::Rate => "samples/s".to_owned(),
        });
        [groups, self.join(names)]
    }

    /// The line of an epoch or an evaluation.
    pub fn line(&self, row: &Row) -> String {
        let figures = |of: Option<&Figures>, which: Figure, width: usize| match of.and_then(|f| f.get(which)) {
            None => "-".to_string(),
            Some(share) if which.is_share() => {
                let text = percent(share);
                if text.len() > width { text.replace(' ', "") } else { text }
            }
            Some(value) => figure(value, 5, width),
        };
        let cells = self.columns.iter().map(|(content, width)| match content {
            Content::Place => format!("{}/{}", row.at, self.counted.1),
            Content::Train(f) => figures(row.train.as_ref(), *f, *width),
            Content::Val(f) => figures(row.val.as_ref(), *f, *width),
            Content::Head(at, f, val) => {
                let of = if *val { &row.val } else { &row.train };
                figures(of.as_ref().and_then(|figures| figures.of_head(&self.heads[*at])), *f, *width)
            }
            Content::Seconds => figure(row.seconds, 1, *width),
            Content::Rate => figure(row.samples_per_s, usize::from(row.samples_per_s < 10.0), *width),
        });
        let line = self.join(cells);
        if row.best { format!("{line}{}{BEST}", " ".repeat(self.gap)) } else { line }
    }

    fn join(&self, cells: impl Iterator<Item = String>) -> String {
        let cells = cells.zip(&self.columns).map(|(text, (_, width))| format!("{text:>width$}"));
        cells.collect::<Vec<_>>().join(&" ".repeat(self.gap))
    }
}

/// What the figure of a head is called, in a cell that is so wide if it can be.
fn of_head(head: &str, figure: Figure, width: usize) -> String {
    let long = format!("{head}_{}", figure.name());
    if columns(&long) <= width.max(9) { long } else { format!("{head}_{}", figure.short_name()) }
}

impl Content {
    fn is_place(&self) -> bool {
        *self == Content::Place
    }

    fn is_train(&self) -> bool {
        matches!(self, Content::Train(_) | Content::Head(_, _, false))
    }

    fn is_val(&self) -> bool {
        matches!(self, Content::Val(_) | Content::Head(_, _, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{CrossEntropy, ElementwiseLoss, IGNORE_INDEX, METRIC_SLOTS, RowLoss};

    fn figures(task: Task, value: f64) -> Figures {
        let figures = Figures::new(task, &[0.0; METRIC_SLOTS]);
        let all = |to: Figures, f: &Figure| to.with(*f, if f.is_share() { 1.0 } else { value });
        task.figures().iter().fold(figures, all)
    }

    /// Figures that are far too long when they are written out.
    const ODD: [f64; 9] =
        [0.0, 0.22594, 1e-12, 3.3e38, f64::MAX, f64::MIN_POSITIVE, f64::NAN, f64::INFINITY, 123_456.789];

    #[test]
    fn rows_fit_and_stand_under_their_names() {
        for task in [Task::Classification, Task::Regression] {
            for (epochs, validated, columns) in [
                (3, true, 80),
                (100, true, 80),
                (1000, true, 80),
                (10, false, 80),
                (10, true, 50),
                (10, true, 60),
                (10, true, 200),
            ] {
                let figures_of = if validated { task.figures() } else { &[] };
                let table = Table::new(task, figures_of, &[], ("epoch", epochs), columns);
                let header = table.header();
                assert!(table.width() <= columns, "{header:#?}");
                let end = header[1].trim_end().len();
                for value in ODD {
                    let of = |wanted: bool| wanted.then(|| figures(task, value));
                    for val in [of(validated), None] {
                        let row = Row {
                            at: epochs,
                            train: of(true),
                            val,
                            seconds: value.abs(),
                            samples_per_s: value.abs(),
                            best: true,
                        };
                        let line = table.line(&row);
                        assert!(line.len() <= columns, "{line}");
                        let without = table.line(&Row { best: false, ..row.clone() });
                        assert_eq!(without.len(), end, "columns end where their names do:\n{}\n{without}", header[1]);
                        assert_eq!(
                            without.split_whitespace().filter(|w| *w != "%").count(),
                            table.columns.len(),
                            "{line}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_it_looks_like() {
        let row = |train, val, best| Row { at: 1, train, val, seconds: 3.42, samples_per_s: 17590.2, best };
        let class = figures(Task::Classification, 0.29903).with(Figure::Accuracy, 0.9082);
        let table = Table::new(Task::Classification, Task::Classification.figures(), &[], ("epoch", 3), 80);
        let lines = [
            table.header().join("\n"),
            table.line(&row(Some(class.clone()), Some(class.clone()), true)),
            table.line(&row(Some(class.clone()), None, false)),
        ];
        assert_eq!(
            lines.join("\n"),
            "       ------ train -------  ------- val --------\n\
             epoch       loss   accuracy       loss   accuracy  seconds  samples/s\n  \
               1/3    0.29903    90.82 %    0.29903    90.82 %      3.4      17590  best\n  \
               1/3    0.29903    90.82 %          -          -      3.4      17590"
        );
        let square = figures(Task::Regression, 1.5e12).with(Figure::Mae, 0.25).with(Figure::Rmse, f64::NAN);
        let table = Table::new(Task::Regression, Task::Regression.figures(), &[], ("epoch", 3), 80);
        let lines = [table.header().join("\n"), table.line(&row(Some(square.clone()), Some(square), true))];
        assert_eq!(
            lines.join("\n"),
            "      -------- train -------- --------- val ---------\n\
             epoch    loss     mae    rmse    loss     mae    rmse seconds samples/s\n  \
               1/3 1.50e12 0.25000     NaN 1.50e12 0.25000     NaN     3.4     17590 best"
        );
        let asked = [Figure::Loss, Figure::Accuracy, Figure::Top5Accuracy, Figure::MacroF1, Figure::MeanIou];
        let val = class.clone().with(Figure::Top5Accuracy, 1.0).with(Figure::MacroF1, 0.875).with(Figure::MeanIou, 0.0);
        let table = Table::new(Task::Classification, &asked, &[], ("epoch", 3), 80);
        let lines = [table.header().join("\n"), table.line(&row(Some(class), Some(val), true))];
        assert_eq!(
            lines.join("\n"),
            "      ---- train ---- ----------------- val -----------------\n\
             epoch    loss     acc    loss     acc    top5      f1    miou seconds\n  \
               1/3 0.29903 90.82 % 0.29903 90.82 % 100.00% 87.50 %  0.00 %     3.4 best"
        );
        let text = [Figure::Loss, Figure::Accuracy, Figure::Perplexity, Figure::BitsPerByte];
        let names = |width| Table::new(Task::Classification, &text, &[], ("step", 2000), width).header()[1].clone();
        assert!(names(80).contains(" bpb ") && names(120).contains(" bpb "), "{}\n{}", names(80), names(120));
        // Without room the times stay, and bits a byte do not.
        assert!(names(74).contains(" ppl ") && !names(74).contains("bpb") && names(74).ends_with("samples/s"));
        let all = [Task::Classification.figures(), Task::Classification.asked_figures()].concat();
        let table = Table::new(Task::Classification, &all, &[], ("epoch", 3), 80);
        assert!(table.width() <= 80, "{:?}", table.header());
    }
    #[test]
    fn heads_have_a_figure_each_where_there_is_room() {
        let sold = CrossEntropy {
            form: RowLoss::CrossEntropy,
            label_smoothing: 0.0,
            ignore_index: IGNORE_INDEX,
            weight: Vec::new(),
        };
        let head = |name: &str, loss| HeadOf { name: name.into(), loss, weight: 1.0 };
        let heads = [head("sold", sold.into()), head("rent", ElementwiseLoss::Mse.into())];
        let table = |width| Table::new(Task::Regression, Task::Regression.figures(), &heads, ("epoch", 3), width);
        let of = |task, value| figures(task, value);
        let all = of(Task::Regression, 0.5).and_of_head("sold".into(), Some(of(Task::Classification, 0.5)));
        let row = Row { at: 1, train: None, val: Some(all), seconds: 3.0, samples_per_s: 5.0, best: true };
        let [wide, narrow] = [120, 70].map(table);
        let names = wide.header()[1].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names[7..9], ["sold_acc", "rent_mae"]);
        let line = wide.line(&row);
        // Nothing is known of the training, nor of the other head.
        assert!(
            line.contains(" 100.00 % ") && line.split_whitespace().filter(|cell| *cell == "-").count() == 4,
            "{line}"
        );
        assert!(!narrow.header()[1].contains("sold") && narrow.width() <= 70, "{:?}", narrow.header());
    }
}
