// expfmt parses a page on stdin with Prometheus's Go library. The Kubernetes gateway's endpoint picker and promtool use the
// same library.
//
//	usage: expfmt CONTENT-TYPE
//
// It prints a JSON array of families with name, type and samples. A sample is [name, labels, value]: a histogram becomes
// _bucket, _sum and _count. Values are text, so that no digit is lost. "native" lists the series that have native buckets,
// with their schema and count.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

type family struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Unit      string   `json:"unit"`
	Samples   [][3]any `json:"samples"`
	Native    []native `json:"native"`
	Exemplars int      `json:"exemplars"`
}

type native struct {
	Labels map[string]string `json:"labels"`
	Schema int32             `json:"schema"`
	Count  uint64            `json:"count"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: expfmt CONTENT-TYPE")
	}
	format := expfmt.ResponseFormat(http.Header{"Content-Type": {os.Args[1]}})
	// Like the picker, parse every text format with the text parser, because ResponseFormat only knows version 0.0.4.
	text := strings.HasPrefix(os.Args[1], "text/plain;")
	if format.FormatType() == expfmt.TypeUnknown && !text {
		fail("expfmt: unknown Content-Type " + os.Args[1])
	}
	// The gateway's picker accepts only names of the legacy character set.
	model.NameValidationScheme = model.LegacyValidation
	families := []family{}
	if text {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		read, err := parser.TextToMetricFamilies(os.Stdin)
		if err != nil {
			fail(err.Error())
		}
		for _, one := range read {
			families = append(families, flatten(one))
		}
	} else {
		decoder := expfmt.NewDecoder(bufio.NewReader(os.Stdin), format)
		for {
			var one dto.MetricFamily
			if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				fail(err.Error())
			}
			families = append(families, flatten(&one))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(families); err != nil {
		fail(err.Error())
	}
}

func flatten(read *dto.MetricFamily) family {
	out := family{Name: read.GetName(), Type: strings.ToLower(read.GetType().String()), Unit: read.GetUnit()}
	out.Samples, out.Native = [][3]any{}, []native{}
	for _, metric := range read.GetMetric() {
		if metric.TimestampMs != nil {
			fail(out.Name + " has a timestamp")
		}
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		add := func(name string, labels map[string]string, value float64) {
			out.Samples = append(out.Samples, [3]any{name, labels, strconv.FormatFloat(value, 'g', -1, 64)})
		}
		switch {
		case metric.Gauge != nil && read.GetType() == dto.MetricType_GAUGE:
			add(out.Name, labels, metric.Gauge.GetValue())
		case metric.Counter != nil && read.GetType() == dto.MetricType_COUNTER:
			add(out.Name, labels, metric.Counter.GetValue())
		case metric.Histogram != nil && read.GetType() == dto.MetricType_HISTOGRAM:
			histogram := metric.Histogram
			for _, bucket := range histogram.GetBucket() {
				with := map[string]string{"le": strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)}
				for name, value := range labels {
					with[name] = value
				}
				add(out.Name+"_bucket", with, float64(bucket.GetCumulativeCount()))
				if bucket.Exemplar != nil {
					out.Exemplars++
				}
			}
			add(out.Name+"_sum", labels, histogram.GetSampleSum())
			add(out.Name+"_count", labels, float64(histogram.GetSampleCount()))
			if histogram.Schema != nil {
				out.Native = append(out.Native, native{labels, histogram.GetSchema(), counted(histogram)})
			}
		default:
			fail(fmt.Sprintf("%s is a %s without a value of that kind", out.Name, out.Type))
		}
	}
	return out
}

// counted returns the number of observations: the sum over all native buckets.
func counted(histogram *dto.Histogram) uint64 {
	count, current, at := int64(histogram.GetZeroCount()), int64(0), 0
	for _, span := range histogram.GetPositiveSpan() {
		for range span.GetLength() {
			current += histogram.GetPositiveDelta()[at]
			at++
			count += current
		}
	}
	if at != len(histogram.GetPositiveDelta()) {
		fail("a native histogram has more buckets than its spans")
	}
	return uint64(count)
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
