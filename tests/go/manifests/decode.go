package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	pool "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	picker "sigs.k8s.io/gateway-api-inference-extension/apix/config/v1alpha1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	adapter "sigs.k8s.io/prometheus-adapter/pkg/config"
	"sigs.k8s.io/yaml"
)

func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	groups := []func(*runtime.Scheme) error{
		apps.AddToScheme, autoscaling.AddToScheme, core.AddToScheme, networking.AddToScheme, rbac.AddToScheme,
		keda.AddToScheme, monitoring.AddToScheme, pool.Install, picker.Install, gateway.Install,
	}
	for _, add := range groups {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// document is one Kubernetes object of a file, with its kind.
type document struct {
	bytes  []byte
	kind   string
	object runtime.Object // nil for the values of the chart prometheus-adapter
}

// decodeAll reads the documents of a file. Without a scheme, it accepts every kind and decodes only their YAML.
func decodeAll(path string, s *runtime.Scheme) ([]document, error) {
	input := io.Reader(os.Stdin)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		input = file
	}
	var decoder runtime.Decoder
	if s != nil {
		decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(input))
	var documents []document
	var problems []error
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, errors.Join(problems...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if isEmpty(text) {
			continue
		}
		decoded, err := decode(text, decoder)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: document %d: %w", path, len(documents)+1, err))
		}
		documents = append(documents, decoded)
	}
}

// isEmpty is true for a document that contains only comments.
func isEmpty(text []byte) bool {
	for _, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func decode(text []byte, decoder runtime.Decoder) (document, error) {
	var untyped map[string]any
	if err := yaml.UnmarshalStrict(text, &untyped); err != nil {
		return document{bytes: text}, err
	}
	if decoder == nil {
		return document{bytes: text}, nil
	}
	if untyped["kind"] == nil && untyped["rules"] != nil {
		return document{bytes: text, kind: "values of prometheus-adapter"}, adapterValues(untyped)
	}
	object, kind, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return document{bytes: text}, err
	}
	found := document{bytes: text, kind: kind.Kind, object: object}
	if config, ok := object.(*core.ConfigMap); ok {
		if err := decodeData(config, decoder); err != nil {
			return found, err
		}
	}
	accessor, ok := object.(meta.ObjectMetaAccessor)
	if ok && accessor.GetObjectMeta().GetName() == "" {
		return found, fmt.Errorf("%s: metadata.name is missing", kind.Kind)
	}
	return found, nil
}

// decodeData decodes the objects in a ConfigMap, such as the picker's configuration.
func decodeData(config *core.ConfigMap, decoder runtime.Decoder) error {
	for key, text := range config.Data {
		var kind meta.TypeMeta
		if yaml.Unmarshal([]byte(text), &kind) != nil || kind.Kind == "" || kind.APIVersion == "" {
			continue
		}
		if _, _, err := decoder.Decode([]byte(text), nil, nil); err != nil {
			return fmt.Errorf("ConfigMap %s, key %s: %w", config.Name, key, err)
		}
	}
	return nil
}

// adapterValues checks values of the chart prometheus-adapter by decoding its rules as the adapter's own configuration.
func adapterValues(values map[string]any) error {
	rules, _ := values["rules"].(map[string]any)
	for key := range rules {
		if key != "default" && key != "custom" && key != "external" {
			return fmt.Errorf("unknown field rules.%s", key)
		}
	}
	text, err := yaml.Marshal(map[string]any{"rules": rules["custom"], "externalRules": rules["external"]})
	if err != nil {
		return err
	}
	config, err := adapter.FromYAML(text)
	if err == nil && len(config.Rules)+len(config.ExternalRules) == 0 {
		err = errors.New("rules.custom and rules.external are empty")
	}
	return err
}

func decodeFiles(paths []string) ([]document, error) {
	s, err := scheme()
	if err != nil {
		return nil, err
	}
	var all []document
	var problems []error
	for _, path := range paths {
		documents, err := decodeAll(path, s)
		if err == nil && len(documents) == 0 {
			err = fmt.Errorf("%s: no objects", path)
		}
		all, problems = append(all, documents...), append(problems, err)
	}
	return all, errors.Join(problems...)
}
