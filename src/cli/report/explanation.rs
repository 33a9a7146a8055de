//! Which columns a model of a table depends on, and what it answers by their values: what `explain` finds, with pictures.

use super::html::{Table, escaped};
use super::pictures::{MOST_OUTPUTS, bars, curve, scale_of};
use crate::api::explain::{
    Dependence, Figures, Importance, Sums, as_they_are, dependence, importances, outputs_named, shuffled,
};
use crate::api::failure::Failure;
use crate::cli::args::{POINTS, REPEATS, ROWS, ReportArgs, SplitName};
use crate::cli::explain::{OF_HEADS, Question, asked, figures_in_words, figures_json, loss_name, rows_in_words};
use crate::runs::Run;
use crate::terminal::{figure, one_line, percent, thousands, visible};
use anyhow::anyhow;
use serde_json::{Map, Value};

/// Columns that have a bar: the most important ones.
const MOST_BARS: usize = 25;
/// Columns of those that have a curve.
const MOST_CURVES: usize = 12;
/// Columns in the table.
const MOST_ROWS: usize = 500;

/// How much the columns of a table matter to a model.
pub struct Explanation {
    /// Which rows it was asked about, and its figures on them.
    of: String,
    figures: Figures,
    /// Of each column, the most important first.
    columns: Vec<Importance>,
    /// What the outputs of the model are called.
    outputs: Vec<String>,
    /// What it answers by the values of the most important columns. A column of texts has no curve.
    curves: Vec<(String, Vec<Dependence>)>,
    /// What must be known of it.
    note: Option<&'static str>,
}

impl Explanation {
    /// What `explain` prints as JSON.
    pub fn as_json(&self) -> Map<String, Value> {
        figures_json(&self.figures, &self.columns)
    }
}

/// Asks a run's best checkpoint about the rows that training validates on.
///
/// # Errors
/// The run has no checkpoint, or is of no table; its data is not there or has no such rows.
pub fn explanation(run: &Run, args: &ReportArgs) -> Result<Explanation, Failure> {
    let of = format!("`--explain` of the run `{}`", one_line(&visible(&run.path.display().to_string())));
    explained(run, args).map_err(|failure| match failure {
        Failure::Usage(why) => Failure::Usage(format!("{of}: {why}")),
        Failure::Other(why) => Failure::Other(why.context(of)),
        other @ (Failure::Config { .. } | Failure::Device(_)) => other,
    })
}

fn explained(run: &Run, args: &ReportArgs) -> Result<Explanation, Failure> {
    let model = run.checkpoint().ok_or_else(|| Failure::Other(anyhow!("the run has no checkpoint yet")))?;
    let question = Question {
        model: &model,
        overrides: &args.overrides,
        split: SplitName::Val,
        rows: ROWS,
        seed: 0,
        threads: args.threads,
        otherwise: "a report draws what the model makes of rows that training validates on",
    };
    let asked = asked(&question)?;
    let (predictor, codec, rows) = (&asked.predictor, &asked.codec, &asked.rows);
    let figures = as_they_are(predictor, rows)?.figures();
    let all: Vec<(String, Vec<Sums>)> = shuffled(predictor, codec, rows, (REPEATS, question.seed))?;
    let columns = importances(&figures, &all);
    let has_curve = |name: &str| codec.columns.iter().any(|column| column.name == *name && !column.is_text());
    let curves = columns.iter().filter(|one| has_curve(&one.column)).take(MOST_CURVES).map(|one| {
        let values = dependence(predictor, codec, rows, &one.column, POINTS)?;
        Ok((one.column.clone(), values))
    });
    Ok(Explanation {
        of: format!("{}: {}", rows_in_words(asked.split, rows.len(), asked.whole), figures_in_words(&figures)),
        figures,
        outputs: outputs_named(codec, predictor),
        curves: curves.collect::<Result<_, Failure>>()?,
        columns,
        note: asked.has_heads.then_some(OF_HEADS),
    })
}

/// The part of the page.
pub fn explanation_html(explanation: &Explanation) -> String {
    let Explanation { of, figures, columns, outputs, curves, note } = explanation;
    let (loss, count) = (loss_name(figures), columns.len());
    let mut out = format!("<h3>Which columns the model depends on</h3>\n<p>{}</p>\n", escaped(of));
    if let Some(note) = note {
        out += &format!("<p><strong>Note:</strong> {}</p>\n", escaped(note));
    }
    let all = if count > MOST_BARS {
        format!("The {MOST_BARS} most important of {} columns: b", thousands(count as u64))
    } else {
        "B".to_owned()
    };
    out += &format!(
        "<figure class=\"drawn\" tabindex=\"0\"><figcaption class=\"soft\">{all}y how much the {loss} grows where the cells of a column are shuffled among the rows. The \
         mean of {REPEATS} times, and the standard deviation.</figcaption>\n{}</figure>\n",
        bars(&columns[..count.min(MOST_BARS)])
    );
    out += &table(columns, figures);
    // On one scale columns can be compared: what does not matter is flat.
    let Some(scale) = scale_of(curves.iter().flat_map(|(_, values)| values)) else { return out };
    let shown = outputs.len().min(MOST_OUTPUTS);
    let which = if curves.len() < count {
        format!("the {} most important columns that have no texts", curves.len())
    } else {
        "each column".to_owned()
    };
    let what =
        if figures.accuracy.is_nan() { "What the model answers" } else { "The probabilities that the model gives" };
    let more = match outputs.len() - shown {
        0 => String::new(),
        more => format!(" The first {shown} of {} are drawn, and {more} are not.", outputs.len()),
    };
    out += &format!(
        "<h4>By the values of {which}</h4>\n<p class=\"soft\">{what} on the average, where all rows have one value in the column: at most {POINTS} values, of \
         numbers at evenly spaced ranks, of texts the most frequent. All have one scale.{more}</p>\n"
    );
    if outputs.len() > 1 {
        let one = |(at, name): (usize, &String)| {
            format!(
                "<li><span class=\"key\" style=\"background: var(--c{at})\"></span>{}</li>",
                escaped(&one_line(name))
            )
        };
        let all: String = outputs.iter().take(shown).enumerate().map(one).collect();
        out += &format!("<ul class=\"keys\">{all}</ul>\n");
    }
    let one = |(name, values): &(String, Vec<Dependence>)| {
        format!(
            "<figure><figcaption>{}</figcaption>{}</figure>\n",
            escaped(&one_line(name)),
            curve(name, outputs.len(), values, scale)
        )
    };
    let all: String = curves.iter().map(one).collect();
    out + &format!("<div class=\"small\">\n{all}</div>\n")
}

/// The numbers of the bars, of more columns.
fn table(columns: &[Importance], figures: &Figures) -> String {
    let classes = !figures.accuracy.is_nan();
    let more = format!("#{} more by", loss_name(figures));
    let mut head = vec!["column", &more, "#±"];
    if classes {
        head.extend(["#accuracy less by", "#±"]);
    }
    let rest = columns.len().saturating_sub(MOST_ROWS);
    let caption = match rest {
        0 => "What each column matters".to_owned(),
        _ => format!("What the {MOST_ROWS} most important columns matter; {} matter less", thousands(rest as u64)),
    };
    let mut table = Table::new(&caption, &head);
    for one in columns.iter().take(MOST_ROWS) {
        let mut cells = vec![one_line(&one.column), figure(one.loss[0], 4, 12), figure(one.loss[1], 4, 12)];
        if classes {
            cells.extend(one.accuracy.map(percent));
        }
        table.row(&cells);
    }
    format!("<details><summary>The same as a table</summary>\n{}</details>\n", table.html())
}
