//! Cells of heat maps: the colour shows a level.

use super::{Area, Shape, Svg};

/// Number of colours of a heat map, the classes `h1` to `h9`; `h0` is the background, which is not
/// drawn.
pub(crate) const HEAT_LEVELS: usize = 9;

/// Cells by level. Each level is one mark.
#[derive(Debug, Default)]
pub(crate) struct HeatCells {
    levels: [Vec<Area>; HEAT_LEVELS + 1],
}

impl HeatCells {
    pub(crate) fn add(&mut self, level: usize, cell: Area) {
        self.levels[level.min(HEAT_LEVELS)].push(cell);
    }

    /// Draws the cells, except those of level 0.
    pub(crate) fn draw(&self, svg: &mut Svg) {
        for (level, cells) in self.levels.iter().enumerate().skip(1) {
            svg.add(Shape::cells(cells).class(&heat_class(level)));
        }
    }
}

pub(crate) fn heat_class(level: usize) -> String {
    format!("h{level}")
}

/// Returns the level of a value: the number of bounds that it reaches.
pub(crate) fn level(value: f64, bounds: &[f64; HEAT_LEVELS]) -> usize {
    bounds.iter().filter(|bound| value >= **bound).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_level_are_one_mark() {
        let mut cells = HeatCells::default();
        cells.add(0, Area::between((0.0, 0.0), (1.0, 1.0)));
        cells.add(3, Area::between((0.0, 0.0), (1.0, 1.0)));
        cells.add(3, Area::between((3.0, 1.0), (2.0, 0.0)));
        cells.add(9, Area::between((f64::NAN, 0.0), (3.0, 1.0)));
        let mut svg = Svg::new("t", "d");
        cells.draw(&mut svg);
        let text = svg.markup("x").into_string();
        assert_eq!(text.matches("<path").count(), 1);
        assert_eq!(text.matches('M').count(), 2, "{text}");
        assert!(text.contains("h3"));
    }

    #[test]
    fn a_level_is_the_number_of_bounds_reached() {
        let bounds = [0.1, 1.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0];
        let levels = [0.0, 0.1, 5.0, 1e9, f64::NAN].map(|value| level(value, &bounds));
        assert_eq!(levels, [0, 1, 2, 9, 0]);
    }
}
