// picker reads exporters with the code of the Kubernetes gateway's endpoint picker: its data source, its extractor with the
// built-in engine types, its queue scorer and its saturation filter.
//
//	usage: picker PATH NAME=HOST:PORT...
//
// For each line on stdin it polls every endpoint once under each engine type. It prints one line of JSON: the picker's
// values of each endpoint, whether this poll updated them, the endpoint's score, and whether requests may go to it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/datalayer"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	extractor "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/extractor/metrics"
	source "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/datalayer/source/metrics"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/flowcontrol/saturationdetector/utilization"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/scheduling/scorer/queuedepth"
)

var engineTypes = []string{"triton-tensorrt-llm", "trtllm-serve"}

type seen struct {
	Waiting   int     `json:"waiting"`
	Running   int     `json:"running"`
	KvUsage   float64 `json:"kv_usage"`
	BlockSize int     `json:"block_size"`
	Blocks    int     `json:"blocks"`
	// Updated is false if the poll returned nothing. After some time the picker considers the endpoint stale.
	Updated bool    `json:"updated"`
	Error   string  `json:"error"`
	Score   float64 `json:"score"`
	// Chosen means that the saturation filter lets requests through to the endpoint.
	Chosen bool `json:"chosen"`
}

type endpoint struct {
	name  string
	state *datalayer.ModelServer
}

// pool is one InferencePool: all endpoints have the same engine type.
type pool struct {
	source    datalayer.PollingDataSource
	extractor datalayer.Extractor
	detector  *utilization.Detector
	endpoints []endpoint
}

func main() {
	if len(os.Args) < 3 {
		fail("usage: picker PATH NAME=HOST:PORT...")
	}
	log.SetLogger(logr.Discard())
	pools := map[string]*pool{}
	for _, engineType := range engineTypes {
		pools[engineType] = newPool(engineType, os.Args[1], os.Args[2:])
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		all := map[string]map[string]seen{}
		for engineType, pool := range pools {
			all[engineType] = pool.poll()
		}
		if err := out.Encode(all); err != nil {
			fail(err.Error())
		}
	}
}

func newPool(engineType, path string, addresses []string) *pool {
	made, err := source.NewHTTPMetricsDataSource("http", path, "source")
	if err != nil {
		fail(err.Error())
	}
	parameters := json.RawMessage(fmt.Sprintf(`{"defaultEngine": %q}`, engineType))
	plugin, err := extractor.CoreMetricsExtractorFactory("extractor", parameters, nil)
	if err != nil {
		fail(err.Error())
	}
	// The picker's own limits, except the age at which an endpoint is stale: its 200 ms would fail on a busy test machine.
	detector := utilization.NewDetector("detector", utilization.Config{
		QueueDepthThreshold:       utilization.DefaultQueueDepthThreshold,
		KVCacheUtilThreshold:      utilization.DefaultKVCacheUtilThreshold,
		MetricsStalenessThreshold: 2 * time.Second,
	}, logr.Discard())
	pool := &pool{source: made, extractor: plugin.(datalayer.Extractor), detector: detector}
	for _, argument := range addresses {
		name, address, _ := strings.Cut(argument, "=")
		// The picker derives the address of the metrics from the pod's address and the pool's target port.
		metadata := &datalayer.EndpointMetadata{PodName: name, MetricsHost: address}
		pool.endpoints = append(pool.endpoints, endpoint{name, datalayer.NewEndpoint(metadata, datalayer.NewMetrics())})
	}
	return pool
}

func (pool *pool) poll() map[string]seen {
	all := map[string]seen{}
	candidates := []scheduling.Endpoint{}
	for _, one := range pool.endpoints {
		before := one.state.GetMetrics().UpdateTime
		page, err := pool.source.Poll(context.Background(), one.state)
		if err == nil {
			err = pool.extractor.Extract(context.Background(), page, one.state)
		}
		known := one.state.GetMetrics()
		of := seen{Waiting: known.WaitingQueueSize, Running: known.RunningRequestsSize, KvUsage: known.KVCacheUsagePercent,
			BlockSize: known.CacheBlockSize, Blocks: known.CacheNumBlocks, Updated: known.UpdateTime != before}
		if err != nil {
			of.Error = err.Error()
		}
		all[one.name] = of
		candidates = append(candidates, scheduling.NewEndpoint(one.state.GetMetadata(), known, nil))
	}
	scores := queuedepth.NewQueueScorer().Score(context.Background(), nil, nil, candidates)
	chosen := pool.detector.Filter(context.Background(), nil, nil, candidates)
	for _, candidate := range candidates {
		name := candidate.GetMetadata().PodName
		of := all[name]
		of.Score = scores[candidate]
		for _, one := range chosen {
			of.Chosen = of.Chosen || one.GetMetadata().PodName == name
		}
		all[name] = of
	}
	return all
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
