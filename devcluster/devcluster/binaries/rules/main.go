// Reads files of rules as Prometheus loads them, and prints what it does not take.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	wrong := 0
	for _, file := range os.Args[1:] {
		_, faults := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
		for _, fault := range faults {
			fmt.Println(fault)
		}
		wrong += len(faults)
	}
	if wrong > 0 {
		os.Exit(1)
	}
}
