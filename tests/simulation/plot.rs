//! Pictures: how deep the queue was and how many calls went out while the storm passed, and what each policy paid.

use std::path::Path;

use plotters::prelude::*;

use super::report::{OURS, Row};
use super::scenario::Scenario;
use super::world::{MINUTE, Ms};

/// The scenario's pictures, as `{name}.svg` and `{name}-bars.svg`; their names.
pub(crate) fn draw(directory: &Path, scenario: &Scenario, rows: &[Row]) -> Result<Vec<String>, String> {
    let mut drawn = Vec::new();
    let name = format!("{}.svg", scenario.name);
    over_time(&directory.join(&name), scenario, rows).map_err(|error| error.to_string())?;
    drawn.push(name);
    if rows.len() > 1 {
        let name = format!("{}-bars.svg", scenario.name);
        bars(&directory.join(&name), scenario, rows).map_err(|error| error.to_string())?;
        drawn.push(name);
    }
    Ok(drawn)
}

/// A row's points, in minutes.
type Line<'a> = &'a dyn Fn(&Row) -> Vec<(f64, f64)>;
type Figure = fn(&Row) -> f64;
type Outcome = Result<(), Box<dyn std::error::Error>>;

fn over_time(path: &Path, scenario: &Scenario, rows: &[Row]) -> Outcome {
    let root = SVGBackend::new(path, (960, 640)).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(320);
    let shown: Vec<&Row> = rows.iter().filter(|row| SHOWN.contains(&row.policy.as_str())).collect();
    let minutes = scenario.plotted() as f64 / MINUTE as f64;
    let points = |row: &Row, of: &dyn Fn(&super::facts::Point) -> f64| -> Vec<(f64, f64)> {
        let at = |index: usize| (index as Ms * row.every) as f64 / MINUTE as f64;
        row.series
            .iter()
            .enumerate()
            .map(|(index, point)| (at(index), of(point)))
            .take_while(|(x, _)| *x <= minutes)
            .collect()
    };
    let waiting = |row: &Row| points(row, &|point| f64::from(point.waiting));
    let calls = |row: &Row| points(row, &|point| f64::from(point.calls) * MINUTE as f64 / row.every as f64);
    let panels: [(&str, Line<'_>); 2] = [("jobs that wait", &waiting), ("calls a minute", &calls)];
    for (area, (caption, series)) in [upper, lower].iter().zip(panels) {
        let lines: Vec<(&Row, Vec<(f64, f64)>)> = shown.iter().map(|row| (*row, series(row))).collect();
        let highest = lines.iter().flat_map(|(_, line)| line).map(|(_, y)| *y).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{}: {caption}", scenario.title), ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..minutes, 0.0..highest * 1.05)?;
        chart
            .configure_mesh()
            .x_desc("minutes")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for phase in scenario.phases.iter().filter(|phase| phase.is_trouble()) {
            let (from, to) = (phase.from() as f64 / MINUTE as f64, (phase.to() as f64 / MINUTE as f64).min(minutes));
            chart.draw_series([Rectangle::new([(from, 0.0), (to, highest * 1.05)], SHADE.filled())])?;
        }
        for (row, line) in lines {
            let style = colour(&row.policy).stroke_width(if row.policy == OURS { 3 } else { 1 });
            chart
                .draw_series(LineSeries::new(line, style))?
                .label(&row.policy)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

fn bars(path: &Path, scenario: &Scenario, rows: &[Row]) -> Outcome {
    let height = 40 + 24 * u32::try_from(rows.len())?;
    let root = SVGBackend::new(path, (960, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let of_jobs: [(&str, Figure); 3] = [
        ("calls per finished job", |row| row.calls_per_done.unwrap_or_default()),
        ("jobs without an answer, %", |row| f64::from(row.failed + row.lost) / f64::from(row.jobs.max(1)) * 100.0),
        ("time to the answer, p95, minutes", |row| row.done_p95_s.unwrap_or_default() / 60.0),
    ];
    let of_callers: [(&str, Figure); 3] = [
        ("calls per answered user", |row| row.callers.as_ref().and_then(|it| it.calls_per_answer).unwrap_or_default()),
        ("users who were exposed, %", |row| row.callers.as_ref().map_or(0.0, |it| it.user_exposure * 100.0)),
        ("answered within patience, %", |row| row.callers.as_ref().map_or(0.0, |it| it.in_patience_share * 100.0)),
    ];
    let figures = if scenario.calls.is_some() { of_callers } else { of_jobs };
    for (area, (caption, figure)) in root.split_evenly((1, 3)).iter().zip(figures) {
        area.titled(caption, ("sans-serif", 14))?;
        let highest = rows.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max);
        for (index, row) in rows.iter().enumerate() {
            let top = 32 + 24 * i32::try_from(index)?;
            let length = (figure(row) / highest * 120.0) as i32;
            area.draw(&Text::new(row.policy.clone(), (8, top), ("sans-serif", 12)))?;
            let bar = [(130, top - 2), (130 + length.max(1), top + 14)];
            area.draw(&Rectangle::new(bar, colour(&row.policy).filled()))?;
            area.draw(&Text::new(format!("{:.2}", figure(row)), (136 + length.max(1), top), ("sans-serif", 12)))?;
        }
    }
    root.present()?;
    Ok(())
}

fn colour(policy: &str) -> RGBColor {
    match policy {
        OURS => RGBColor(0, 90, 200),
        "spillway-never" => RGBColor(120, 170, 240),
        "spillway-auto" => RGBColor(60, 130, 220),
        "oracle" => RGBColor(0, 140, 70),
        "article-a" | "article-a-counted" => RGBColor(230, 120, 0),
        "article-b" => RGBColor(190, 30, 60),
        "sdk" => RGBColor(120, 120, 120),
        _ => RGBColor(150, 110, 190),
    }
}

/// Lines that can be told apart; the bars have everyone.
const SHOWN: [&str; 6] = [OURS, "spillway-never", "oracle", "article-a", "article-b", "sdk"];
const SHADE: RGBColor = RGBColor(250, 225, 225);
