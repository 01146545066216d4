package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// meta is what every object has.
type meta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// cluster is a connection to the API server.
type cluster struct {
	server, token string
	http          http.Client
}

// clusterFlags declares how to reach the API; inside a pod its service account is the default.
func clusterFlags(flags *flag.FlagSet) func() (*cluster, error) {
	server := flags.String("server", "https://"+os.Getenv("KUBERNETES_SERVICE_HOST")+":443", "URL of the API server")
	token := flags.String("token", account+"token", "file with the token")
	authority := flags.String("ca", account+"ca.crt", "file with the certificate authority")
	return func() (*cluster, error) {
		secret, err := os.ReadFile(*token)
		if err != nil {
			return nil, err
		}
		certificate, err := os.ReadFile(*authority)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(certificate)
		c := &cluster{server: *server, token: strings.TrimSpace(string(secret))}
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		return c, nil
	}
}

func (c *cluster) get(path string) (*http.Response, error) {
	request, err := http.NewRequest(http.MethodGet, c.server+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	answer, err := c.http.Do(request)
	if err == nil && answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return answer, err
}

// store keeps the objects of one kind up to date: one list, then a watch; listed again when the watch drops.
type store[T any] struct {
	mutex   sync.Mutex
	objects map[string]T
	synced  bool
}

func follow[T any](c *cluster, path string, changed func()) *store[T] {
	s := &store[T]{objects: map[string]T{}}
	go func() {
		for {
			if err := s.once(c, path, changed); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			time.Sleep(500 * time.Millisecond)
		}
	}()
	return s
}

func (s *store[T]) all() ([]T, bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := make([]T, 0, len(s.objects))
	for _, object := range s.objects {
		found = append(found, object)
	}
	return found, s.synced
}

func (s *store[T]) once(c *cluster, path string, changed func()) error {
	answer, err := c.get(path)
	if err != nil {
		return err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	err = json.NewDecoder(answer.Body).Decode(&list)
	answer.Body.Close()
	if err != nil {
		return err
	}
	s.mutex.Lock()
	s.objects, s.synced = map[string]T{}, true
	s.mutex.Unlock()
	for _, item := range list.Items {
		if err := s.put(item, false); err != nil {
			return err
		}
	}
	changed()
	answer, err = c.get(path + "?watch=1&resourceVersion=" + list.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	events := json.NewDecoder(answer.Body)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ERROR" || event.Type == "BOOKMARK" {
			if event.Type == "ERROR" {
				return fmt.Errorf("watch of %s ended: %s", path, event.Object)
			}
			continue
		}
		if err := s.put(event.Object, event.Type == "DELETED"); err != nil {
			return err
		}
		changed()
	}
}

func (s *store[T]) put(raw json.RawMessage, deleted bool) error {
	var identity struct {
		Metadata meta `json:"metadata"`
	}
	var object T
	if err := json.Unmarshal(raw, &identity); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := identity.Metadata.Namespace + "/" + identity.Metadata.Name
	if deleted {
		delete(s.objects, key)
	} else {
		s.objects[key] = object
	}
	return nil
}
