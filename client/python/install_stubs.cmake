# Copies the generated stubs from FROM to TO as modules of one package. protoc writes imports from
# the proto package (`from dmuon.v1 import control_pb2`), which works only if that is on PYTHONPATH.
file(MAKE_DIRECTORY ${TO})
file(WRITE ${TO}/__init__.py "\"\"\"Generated from proto/dmuon/v1.\"\"\"\n")
foreach(stem control data admin)
  foreach(suffix _pb2.py _pb2_grpc.py)
    file(READ ${FROM}/${stem}${suffix} text)
    string(REPLACE "from dmuon.v1 import " "from dmuond._generated import " text "${text}")
    file(WRITE ${TO}/${stem}${suffix} "${text}")
  endforeach()
endforeach()
