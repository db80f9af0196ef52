// Reads files of rules as Prometheus loads them, and prints what it does not take.  With `-fires FILE` it reads cases
// from standard input, each a list of series with a value a minute, and prints for each the alerts that fire at its end.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

type values struct {
	Labels map[string]string `json:"labels"`
	Values []float64         `json:"values"`
}

func load(file string) (*rulefmt.RuleGroups, []error) {
	return rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "-fires" {
		fires(os.Args[2])
		return
	}
	wrong := 0
	for _, file := range os.Args[1:] {
		_, faults := load(file)
		for _, fault := range faults {
			fmt.Println(fault)
		}
		wrong += len(faults)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

func fires(file string) {
	groups, faults := load(file)
	var cases [][]values
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil || len(faults) > 0 {
		panic(fmt.Sprint(err, faults))
	}
	engine := promql.NewEngine(promql.EngineOpts{Timeout: time.Minute, MaxSamples: 1e6})
	found := [][]string{}
	for _, series := range cases {
		firing := []string{}
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				if rule.Alert != "" && firesAtEnd(engine, rule, series) {
					firing = append(firing, rule.Alert)
				}
			}
		}
		found = append(found, firing)
	}
	json.NewEncoder(os.Stdout).Encode(found)
}

// An alert fires if one series of its answer was there at each of the last minutes, for as long as `for` says.
func firesAtEnd(engine *promql.Engine, rule rulefmt.Rule, series []values) bool {
	end, since := 0, map[uint64]time.Time{}
	for _, each := range series {
		end = max(end, len(each.Values))
	}
	at := time.Unix(0, 0)
	for minute := max(0, end-2-int(time.Duration(rule.For)/time.Minute)); minute < end; minute++ {
		at = time.Unix(int64(60*minute), 0)
		query, err := engine.NewInstantQuery(context.Background(), memory(series), nil, rule.Expr, at)
		if err != nil {
			panic(err)
		}
		answer, err := query.Exec(context.Background()).Vector()
		if err != nil {
			panic(err)
		}
		before := since
		since = map[uint64]time.Time{}
		for _, one := range answer {
			since[one.Metric.Hash()] = at
			if begun, known := before[one.Metric.Hash()]; known {
				since[one.Metric.Hash()] = begun
			}
		}
	}
	for _, begun := range since {
		if at.Sub(begun) >= time.Duration(rule.For) {
			return true
		}
	}
	return false
}

type set struct {
	storage.SeriesSet
	of []storage.Series
	at int
}

func (s *set) Next() bool         { s.at++; return s.at < len(s.of) }
func (s *set) At() storage.Series { return s.of[s.at] }

func memory(series []values) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := []storage.Series{}
			for _, each := range series {
				of := promql.Series{Metric: labels.FromMap(each.Labels)}
				for minute, value := range each.Values {
					of.Floats = append(of.Floats, promql.FPoint{T: int64(60_000 * minute), F: value})
				}
				fits := true
				for _, matcher := range matchers {
					fits = fits && matcher.Matches(of.Metric.Get(matcher.Name))
				}
				if fits {
					found = append(found, promql.NewStorageSeries(of))
				}
			}
			return &set{storage.EmptySeriesSet(), found, -1}
		},
	}}
}
