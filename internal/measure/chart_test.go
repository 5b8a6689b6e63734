//go:build unix

package measure

import (
	"encoding/xml"
	"strings"
	"testing"
)

// No text of a chart is wider than its place, whether names are short or long.
func TestChartFits(t *testing.T) {
	const advance = 7.0 // of the mean character, in pixels; of a bold one 7.5
	longTitle := "Redis: growth: Hand-over between two processes, with 10 ms more for each round trip (median, in round trips)"
	for _, label := range []string{"Holdfast", "raw upsert, pgxpool, 1,000,000 held", strings.Repeat("a name that is long, ", 10) + "1,000 held"} {
		chart := Chart(longTitle, []Panel{
			{Title: longTitle, Note: "– less is better", Bars: []Bar{{label, 1, "1,000,000 (0.99×)", "ours"}, {"x", 0.5, "2", "raw"}}},
			{Title: "short", Note: "– less is better", Bars: []Bar{{"y", 1, "3", "raw"}}},
		})
		var svg struct {
			Width  float64 `xml:"width,attr"`
			Height float64 `xml:"height,attr"`
			Rects  []struct {
				X     float64 `xml:"x,attr"`
				Width float64 `xml:"width,attr"`
			} `xml:"rect"`
			Texts []struct {
				X      float64 `xml:"x,attr"`
				Y      float64 `xml:"y,attr"`
				Anchor string  `xml:"text-anchor,attr"`
				Bold   string  `xml:"tspan"`
				Text   string  `xml:",chardata"`
			} `xml:"text"`
		}
		if err := xml.Unmarshal([]byte(chart), &svg); err != nil {
			t.Fatal(err)
		}
		if n := len(svg.Rects); n != 3 || svg.Rects[0].Width < 100 || svg.Rects[0].X > 0.7*svg.Width {
			t.Errorf("%d bars, which begin with %+v", n, svg.Rects[0])
		}
		words := ""
		for _, text := range svg.Texts {
			width := advance*float64(len([]rune(text.Text))) + 7.5*float64(len([]rune(text.Bold)))
			from, to := text.X, text.X+width
			if text.Anchor == "end" {
				from, to = text.X-width, text.X
			}
			if from < 0 || to > svg.Width || text.Y > svg.Height {
				t.Errorf("%q is from %.0f to %.0f, in %.0f", text.Bold+text.Text, from, to, svg.Width)
			}
			words += " " + text.Bold + " " + text.Text
		}
		words = strings.Join(strings.Fields(words), " ")
		if want := longTitle + " – less is better"; strings.Count(words, longTitle) != 2 || !strings.Contains(words, want) || !strings.Contains(words, "short – less is better") {
			t.Errorf("the titles are not complete: %s", words)
		}
		if len(label) > 100 && (!strings.Contains(words, "…") || !strings.Contains(words, "1,000 held") || !strings.Contains(words, label[:20])) {
			t.Errorf("the label is not cut in its middle: %s", words)
		} else if len(label) < 100 && !strings.Contains(words, label) {
			t.Errorf("the label is cut: %s", words)
		}
	}
}
