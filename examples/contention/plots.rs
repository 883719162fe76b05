//! Figures as plots, SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::figures::BINS;
use crate::grid::Row;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 90, 180),
    RGBColor(120, 170, 220),
    RGBColor(200, 40, 40),
    RGBColor(230, 140, 30),
    RGBColor(150, 90, 30),
    RGBColor(60, 140, 60),
    RGBColor(140, 60, 150),
    RGBColor(90, 90, 90),
];

struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// All plots of these rows.
pub fn draw(rows: &[Row], directory: &Path) -> Result {
    let mut stores: Vec<&str> = rows.iter().map(|row| row.store.as_str()).collect();
    stores.dedup();
    stores.sort_unstable();
    stores.dedup();
    for store in stores {
        let slug: String =
            store.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
        let of = |table: &str| -> Vec<&Row> {
            rows.iter().filter(|row| row.store == store && row.table == table).collect()
        };
        let steady = of("steady");
        let by_n = |value: fn(&Row) -> f64| lines(&steady, value);
        let path = |what: &str| directory.join(format!("{what}-{slug}.svg"));
        let carried = by_n(|row| 100.0 * row.figures.carried());
        let axes = |y| Axes { x: "producers", y, log_x: true, log_y: false };
        plot(&path("carried"), &format!("carried of the offered load, {store}"), axes("%"), &carried)?;
        let lost = by_n(|row| 100.0 * row.figures.conflicts);
        plot(&path("lost"), &format!("attempts that lose, {store}"), axes("%"), &lost)?;
        let delay = by_n(|row| row.figures.delay_p50.max(1e-4));
        let log = Axes { log_y: true, ..axes("seconds") };
        plot(&path("delay"), &format!("delay from publish to commit, median, {store}"), log, &delay)?;
        let disturbed = of("disturbed");
        let Some(producers) = disturbed.iter().map(|row| row.scenario.producers).filter(|n| *n <= 256).max()
        else {
            continue;
        };
        let shown = ["N doubles", "half die", "five times as slow for ten turns", "cold start, opens paced"];
        let over_time: Vec<Line<'_>> = disturbed
            .iter()
            .filter(|row| row.scenario.producers == producers && shown.contains(&row.name.as_str()))
            .map(|row| Line { name: &row.name, points: series(row) })
            .collect();
        let title = format!("{producers} producers, parts/s over time, {store}");
        let axes = Axes { x: "part of the run, %", y: "parts/s", log_x: false, log_y: false };
        plot(&path("time"), &title, axes, &over_time)?;
    }
    Ok(())
}

fn series(row: &Row) -> Vec<(f64, f64)> {
    let at = |bin: usize| 100.0 * (bin as f64 + 0.5) / BINS as f64;
    row.figures.series.iter().enumerate().map(|(bin, rate)| (at(bin), *rate)).collect()
}

fn lines<'a>(rows: &[&'a Row], value: fn(&Row) -> f64) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for row in rows {
        let point = (f64::from(row.scenario.producers), value(row));
        match lines.iter_mut().find(|line| line.name == row.name) {
            _ if !point.1.is_finite() => {}
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: &row.name, points: vec![point] }),
        }
    }
    lines
}

#[derive(Clone, Copy)]
struct Axes {
    x: &'static str,
    y: &'static str,
    log_x: bool,
    log_y: bool,
}

fn plot(path: &Path, title: &str, axes: Axes, lines: &[Line<'_>]) -> Result {
    let scale = |value: f64, log: bool| if log { value.log10() } else { value };
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_max = points().map(|point| scale(point.0, axes.log_x)).fold(0.1, f64::max);
    let y_max = points().map(|point| scale(point.1, axes.log_y)).fold(0.1, f64::max) * 1.05;
    let y_min = if axes.log_y { -4.0 } else { 0.0 };
    let area = SVGBackend::new(path, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..x_max, y_min..y_max)?;
    let label = |value: f64, log: bool| {
        if log {
            format!("{:.3}", 10f64.powf(value)).trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            format!("{value:.0}")
        }
    };
    chart
        .configure_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .light_line_style(WHITE)
        .x_label_formatter(&|value| label(*value, axes.log_x))
        .y_label_formatter(&|value| label(*value, axes.log_y))
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let scaled = line.points.iter().map(|(x, y)| (scale(*x, axes.log_x), scale(*y, axes.log_y)));
        chart
            .draw_series(LineSeries::new(scaled, colour.stroke_width(2)))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
    area.present()?;
    Ok(())
}
